package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A client is a Kafka cluster that has been reached: a [sink.Sink]. It keeps for its producers
// what is known about topics, and the memory that records wait in.
type client struct {
	cfg         Config
	log         *slog.Logger
	wire        *wire
	control     *control
	cluster     *cluster
	identities  *identities
	pool        *chunkPool
	counters    counters
	partitioner partitioner
	codec       sarama.CompressionCodec

	mu     sync.Mutex
	stores []*positionStore // to be closed with it
}

// Open implements [sink.Broker]: it connects to a broker, logs in, and takes a producer id, which
// proves that writing is allowed at all. An error that is of no class names a field of c.
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	opened, err := open(ctx, c, log, c.dial())
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// dial returns what makes connections.
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
	if err := c.reach(ctx); err != nil {
		c.control.close()
		return nil, err
	}
	return c, nil
}

func newClient(cfg Config, log *slog.Logger, dial dialFunc) (*client, error) {
	w, err := newWire(&cfg, dial)
	if err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, log: log, wire: w}
	if c.partitioner, err = partitionerOf(cfg.Partitioner); err != nil {
		return nil, err
	}
	if c.codec, err = codecOf(cfg.Compression); err != nil {
		return nil, err
	}
	c.pool = &chunkPool{limit: cfg.WindowBytes + cfg.WindowBytes/16}
	c.counters.topics = make(map[string]*topicCounters)
	c.control = &control{wire: w, seeds: cfg.Brokers, turn: make(chan struct{}, 1)}
	c.identities = &identities{control: c.control}
	c.cluster = &cluster{
		control:  c.control,
		fixed:    cfg.MaxMessageBytes,
		creation: cfg.CreateTopics,
		brokers:  make(map[int32]string),
		topics:   make(map[string]topicInfo),
	}
	return c, nil
}

// reach is the first contact.
func (c *client) reach(ctx context.Context) error {
	return c.persist(ctx, func() error { return c.identities.acquire(ctx) })
}

// startAfter is how long a broker may answer that it is not ready, as each does for a while
// after its start, before that is worth a warning.
const startAfter = 10 * time.Second

// persist repeats attempt while its error is one that may heal, until ctx ends.
func (c *client) persist(ctx context.Context, attempt func() error) error {
	var last error
	began, warned := time.Now(), false
	for n := 0; ; n++ {
		err := attempt()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if final := firstContactError(err); final != nil {
			return final
		}
		_, answered := errors.AsType[*codeError](err)
		switch {
		case !warned && (!answered || time.Since(began) >= startAfter):
			warned = true
			c.log.WarnContext(ctx, "kafka not reached yet", slog.Any("err", err))
		case n == 0:
			c.log.InfoContext(ctx, "kafka is not ready yet", slog.Any("err", err))
		}
		if !sleepUntil(ctx, time.Now().Add(backoff(n, luck()))) {
			return fmt.Errorf("%w at %s: %w (last cause: %w)",
				errUnreachable, strings.Join(c.cfg.Brokers, ", "), context.Cause(ctx), last)
		}
	}
}

// firstContactError returns what Open fails with at once, or nil if waiting may help.
func firstContactError(err error) error {
	if errors.Is(err, sink.ErrAccess) {
		return err
	}
	answer, ok := errors.AsType[*codeError](err)
	if !ok {
		return nil
	}
	switch classify(sarama.KError(answer.Code)) {
	case retry, missing:
		return nil
	case refused:
		return fmt.Errorf("%w: %w", errAccess, err)
	case accepted, corrupt, idLost, record, fenced, fatal:
	}
	return fmt.Errorf("%w: %w", errFatal, err)
}

// CheckDestinations implements [sink.Sink].
func (c *client) CheckDestinations(ctx context.Context, topics ...string) error {
	if err := c.cluster.refresh(ctx, topics); err != nil {
		return fmt.Errorf("look up topics: %w", err)
	}
	var absent []string
	for _, name := range topics {
		k := c.cluster.topic(name).err
		switch class := classify(k); {
		case class == accepted, class == retry:
		case class == missing && c.cfg.CreateTopics == nil:
			absent = append(absent, name)
		case class == missing: // will be created
		case class == refused:
			return fmt.Errorf("%w: topic %s: %w", errAccess, name, errorOf(k))
		default:
			return fmt.Errorf("look up topic %s: %w", name, errorOf(k))
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w: %s", errMissing, strings.Join(absent, ", "))
	}
	return nil
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer { return c.newProducer(cfg) }

func (c *client) newProducer(cfg sink.WriterConfig) *producer {
	p := newProducer(c, cfg)
	c.counters.producer(p)
	return p
}

// Stat implements [sink.Sink].
func (c *client) Stat() sink.Stat {
	s, p := c.counters.stat()
	s.WindowRecords, s.WindowBytes = c.cfg.WindowRecords, c.cfg.WindowBytes
	if p != nil {
		p.stat(&s)
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
