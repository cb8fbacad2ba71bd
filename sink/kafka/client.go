package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A client is the [sink.Sink] of a Kafka cluster. It keeps, for its producers, the metadata of topics and the
// memory for buffered records.
type client struct {
	cfg         Config
	log         *slog.Logger
	connector   *connector
	control     *control
	cluster     *cluster
	identities  *identities
	pool        *chunkPool
	counters    counters
	outage      outage
	partitioner partitioner
	codec       sarama.CompressionCodec
	compacted   bool // the topics are those of positions, which OpenPositions creates

	mu     sync.Mutex
	stores []*positionStore // closed by Close
}

// Open implements [sink.Broker]. It connects to a broker, logs in, and requests a producer id, which proves
// that the user may write. An error without a class names an invalid field of c.
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	opened, err := open(ctx, c, log, c.dial())
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// dial returns the function that makes connections.
func (c Config) dial() dialFunc {
	if c.Dial != nil {
		return c.Dial
	}
	return (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
}

func open(ctx context.Context, cfg Config, log *slog.Logger, dial dialFunc) (*client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(cfg.withDefaults(), log, dial)
	if err != nil {
		return nil, err
	}
	if err := c.reachCluster(ctx); err != nil {
		c.control.close()
		return nil, err
	}
	return c, nil
}

func newClient(cfg Config, log *slog.Logger, dial dialFunc) (*client, error) {
	w, err := newConnector(&cfg, dial)
	if err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, log: log, connector: w}
	if c.partitioner, err = partitionerOf(cfg.Partitioner); err != nil {
		return nil, err
	}
	if c.codec, err = codecOf(cfg.Compression); err != nil {
		return nil, err
	}
	c.pool = new(chunkPool) // its limit follows the window
	c.counters.topics = make(map[string]*topicCounters)
	c.control = &control{connector: w, seeds: cfg.Brokers, inUse: make(chan struct{}, 1)}
	c.identities = &identities{control: c.control}
	c.cluster = &cluster{
		control:    c.control,
		fixedLimit: cfg.MaxMessageBytes,
		createSpec: cfg.CreateTopics,
		brokers:    make(map[int32]string),
		topics:     make(map[string]topicInfo),
	}
	return c, nil
}

// reachCluster connects to the cluster for the first time and requests a producer id.
func (c *client) reachCluster(ctx context.Context) error {
	return c.retryTransient(ctx, func() error { return c.identities.replaceID(ctx) })
}

// CheckDestinations implements [sink.Sink].
func (c *client) CheckDestinations(ctx context.Context, topics ...string) error {
	if err := c.cluster.refresh(ctx, topics); err != nil {
		return fmt.Errorf("look up topics: %w", err)
	}
	return c.checkKnown(topicInfo.writeError, topics...)
}

// checkKnown returns an error like CheckDestinations, for the topics for which errorIn returns one. Their metadata must be known.
func (c *client) checkKnown(errorIn func(topicInfo) sarama.KError, topics ...string) error {
	var absent []string
	for _, name := range topics {
		info := c.cluster.topic(name)
		k := errorIn(info)
		switch class := classifyRead(k); {
		case k == sarama.ErrUnknownTopicOrPartition && c.cfg.CreateTopics == nil:
			absent = append(absent, name)
		case class == accessDenied:
			return fmt.Errorf("%w: topic %s: %w", errAccess, name, errorOf(k))
		case class == fatal:
			return fmt.Errorf("look up topic %s: %w", name, errorOf(k))
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w: %s", sink.Advise(errMissing, c.adviseMissing(absent[0])), strings.Join(absent, ", "))
	}
	return nil
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer { return c.newProducer(cfg) }

func (c *client) newProducer(cfg sink.WriterConfig) *producer {
	p := newProducer(c, cfg)
	p.resizeWindow(c.cfg.windowBytes(0))
	c.counters.setProducer(p)
	return p
}

// Stat implements [sink.Sink].
func (c *client) Stat() sink.Stat {
	s, p := c.counters.stat()
	s.WindowRecords, s.WindowBytes = c.cfg.WindowRecords, c.cfg.windowBytes(0)
	oldest := c.outage.stall(time.Now())
	if p != nil {
		if t := p.addStat(&s); oldest.since.IsZero() || !t.since.IsZero() && t.since.Before(oldest.since) {
			oldest = t
		}
	}
	s.StalledSince, s.StallReason = oldest.since, oldest.reason
	if oldest.topic != "" {
		s.StallReason = "topic " + oldest.topic + ": " + oldest.reason
	}
	s.StallAdvice = oldest.advice
	if oldest.missing {
		s.StallMissing = oldest.topic
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, store := range c.stores {
		store.addStat(&s)
	}
	return s
}

// Close implements [sink.Sink].
func (c *client) Close() error {
	c.mu.Lock()
	stores := c.stores
	c.stores = nil
	c.mu.Unlock()
	for _, s := range stores {
		s.close()
	}
	c.control.close()
	return nil
}

// addStat adds the figures of p to s, and returns its oldest stall.
func (p *producer) addStat(s *sink.Stat) stall {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlightRecords = p.inFlightRecords
	s.InFlightBytes = p.inFlightBytes
	now := time.Now()
	s.WindowBytes, s.WindowAdvice = p.window, p.adviseWindow(now)
	return p.oldestStall(now)
}

// counters are the part of [sink.Stat] that outlives producers.
type counters struct {
	retries    atomic.Int64 // resent batches
	reconnects atomic.Int64
	restamped  atomic.Int64 // records with a sink.TimestampHeader
	renewals   atomic.Int64 // how often records may have been stored twice

	mu          sync.Mutex
	topics      map[string]*topicCounters
	lastError   string
	lastErrorAt time.Time
	current     *producer
}

type topicCounters struct {
	records, bytes atomic.Int64
}

func (c *counters) topic(name string) *topicCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		t = new(topicCounters)
		c.topics[name] = t
	}
	return t
}

func (c *counters) setProducer(p *producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = p
}

// recordError records an error that is retried.
func (c *counters) recordError(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastError, c.lastErrorAt = text, time.Now()
}

func (c *counters) stat() (sink.Stat, *producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := sink.Stat{
		Topics:             make(map[string]sink.TopicStat, len(c.topics)),
		Retries:            c.retries.Load(),
		Reconnects:         c.reconnects.Load(),
		DuplicatesPossible: c.renewals.Load(),
		LastError:          c.lastError,
		LastErrorAt:        c.lastErrorAt,
	}
	for name, t := range c.topics {
		s.Topics[name] = sink.TopicStat{Records: t.records.Load(), Bytes: t.bytes.Load()}
	}
	return s, c.current
}
