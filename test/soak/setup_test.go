package soak

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/brokertest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

const (
	soakSlot          = "soak"
	soakAggregates    = 256
	soakTwins         = 6 // of 100 transactions
	soakWriters       = 4
	soakPace          = 8 * time.Millisecond
	soakPayload       = 64 << 10
	missingPayload    = 4 << 10
	missingPace       = 4 * soakPace
	missingAggregates = 16 // so that the one without a topic is written soon
	soakRun           = "soak"
)

// A soak is a relay between a Postgres and a broker of its own, all of which may be broken
// at any time, with the oracle around it:
//
//	Postgres ← WALProxy ← faultproxy ← relay → faultproxy → broker
//
// There may be several relays of the slot, each with paths of its own.
type soak struct {
	cfg    soakConfig
	seed   uint64
	srv    *pgserver.Server
	broker brokertest.Process // nil: it runs in this process, and is not broken
	kafka  *kafkatest.Cluster // nil with another broker
	over   *brokertest.Broker // nil with Kafka
	db     *pgtest.DB

	cluster *members // the broker, if it is several; otherwise nil

	halfOpen time.Time // until when a relay may wait for a response on a dead connection to the broker

	binary string
	relays []*instance
	before *rig.Process // the relay that was stopped or killed last
	topics []string     // that work: each one receives new rows, whatever fails

	create      func()          // creates the topic that is missing; nil: none is
	confirmable func(time.Time) // notes that no row waits for that topic any more

	journal  *Journal
	checker  *Checker
	confirms *Confirms
	writers  *Writers
	catchUp  rig.CatchUp

	mu         sync.Mutex
	violations []Violation // found by the soak itself
	peak       Sample      // of each field the highest
	holding    holding
	samples    int
	strikes    []struck
	delivered  delivered
	parked     *parkedRows // nil: no keys are parked
}

// An instance is one relay, in one process after the other.
type instance struct {
	name                 string // application_name of its connections
	config               string
	toPostgres, toBroker *faultproxy.Proxy
	process              atomic.Pointer[rig.Process] // the newest; nil: none yet
}

// A soakConfig says how a soak differs from a plain one.
type soakConfig struct {
	over       func(*testing.T) *brokertest.Broker // starts the broker, if it is not Kafka
	binary     string                              // the relay; empty: the one of the tree
	major      int                                 // of Postgres; 0: the default
	relays     int                                 // 0: one
	missing    bool                                // one of the topics is missing until the last strike
	refill     bool                                // the slot may be lost, and the relays refill the gap
	replicated bool                                // Kafka is a cluster of three brokers
	park       bool                                // the topic rejects some records, and the relay parks their keys
	heldWithin time.Duration                       // for how long the slot may be free; 0: no limit
	settings   string                              // lines of the relay's configuration
	twins      int                                 // see [Writers]; 0: soakTwins
	sender     time.Duration                       // wal_sender_timeout; 0: SenderTimeout, with kfake less
	tamper     walproxy.Tamper
	fake       func(*kafkatest.FakeCluster)           // with kfake instead of a broker, which it may control
	before     func(context.Context, *pgx.Conn) error // done before the relay is started again
}

// newSoak starts everything but the relay and the writers.
func newSoak(t *testing.T, cfg soakConfig) *soak {
	t.Helper()
	s := &soak{cfg: cfg, holding: holding{limit: cfg.heldWithin}, seed: uint64(rig.EnvInt(t, "OUTBOX_TEST_SEED", int(time.Now().UnixNano()))), binary: cfg.binary}
	if s.binary == "" {
		s.binary = rig.Binary(t)
	}
	timeout := cmp.Or(cfg.sender, SenderTimeout) // positions are confirmed every third of it, or every second if that is shorter
	if cfg.fake != nil && cfg.sender == 0 {
		timeout = 2 * time.Second // on a busy machine a relay that stops takes more than a second
	}
	s.srv = pgtest.Start(t, pgserver.Config{Major: cfg.major, Settings: map[string]string{
		"wal_sender_timeout": fmt.Sprint(timeout.Milliseconds()),
		"full_page_writes":   "on", // a process that is killed may have written half a page
	}})
	s.db = pgtest.DatabaseOn(t, s.srv)
	rig.Migrate(t, s.db.DSN)
	rig.Must(t, CreateSchema(t.Context(), s.db.DSN, soakAggregates))

	s.journal = NewJournal(journalFile(t))
	if cfg.park {
		s.parked = newParkedRows(s.journal)
		cfg.settings += "on_bad_record: park\ndead_letter_topic: " + deadLetterTopic + "\n"
	}
	s.checker = NewChecker(soakRun, s.journal, s.parked.delivery())
	s.confirms = NewConfirms(s.journal)
	var readAll func()
	if cfg.over != nil {
		if s.over = cfg.over(t); !s.over.Timed {
			readAll = func() { s.readAll(t) }
		}
	}
	wal := walproxy.Start(t, walproxy.Config{
		Target: s.srv.Addr(), Tamper: cfg.tamper, Watch: s.confirms.watch(soakRun, readAll),
		Slot: soakSlot, SlotLost: s.confirms.SlotLost, SlotCreated: s.confirms.SlotCreated,
	})
	for i := range max(1, cfg.relays) {
		s.relays = append(s.relays, &instance{
			name: fmt.Sprintf("relay-%d", i), toPostgres: faultproxy.Start(t, wal.Addr()), toBroker: faultproxy.Start(t, ""),
		})
	}
	connect := s.connectKafka
	if cfg.over != nil {
		connect = s.connectOver
	}
	topic, sink := connect(t)
	for _, r := range s.relays {
		dsn := strings.Replace(s.db.DSN, s.srv.Addr(), r.toPostgres.Addr(), 1) + "&connect_timeout=2&application_name=" + r.name
		r.config = rig.WriteConfigOver(t, dsn, soakSlot, topic, sink(r.toBroker.Addr())+"\n"+cfg.settings)
	}
	s.writers = &Writers{
		DSN: s.db.DSN, Run: soakRun, Seed: s.seed, Writers: soakWriters, Aggregates: soakAggregates,
		MaxPayload: soakPayload, Twins: cmp.Or(cfg.twins, soakTwins), Keep: cfg.refill, Journal: s.journal,
	}
	s.writers.SetPace(soakPace)
	if cfg.missing { // each source loss has the relay read all of it again
		s.writers.Route, s.writers.MaxPayload, s.writers.Aggregates = route, missingPayload, missingAggregates
		s.writers.SetPace(missingPace)
	}
	if cfg.over != nil {
		s.writers.MaxPayload, s.writers.MaxSequence = overPayload, overSequence
		s.writers.SetPace(overPace)
	}
	if cfg.park {
		s.writers.Poison, s.writers.MaxPayload = s.parked.poison, parkPayload
	}
	t.Cleanup(func() { s.endRelays(t) })
	return s
}

// connectKafka starts Kafka and reads it. It returns outbox.topic, and the section sink of a relay that connects to addr.
func (s *soak) connectKafka(t *testing.T) (topic string, sink func(addr string) string) {
	t.Helper()
	s.kafka = s.startKafka(t)
	topic = s.createTopics(t, s.kafka)
	collected := slices.Clone(s.topics)
	if s.cfg.missing {
		collected = append(collected, topicPrefix+missingRoute)
	}
	if s.cfg.park {
		collected = append(collected, deadLetterTopic)
		s.parked.requests = s.kafka.Collect(t, s.parked.takePosition, position.DefaultTopic)
	}
	s.catchUp = s.kafka.Collect(t, s.recordKafka, collected...).CatchUp
	return topic, func(addr string) string {
		if s.cluster != nil {
			addr = strings.Join(s.kafka.Addrs, ", ")
		}
		return fmt.Sprintf("sink: {kafka: {brokers: [%s]}}\n", addr)
	}
}

// startKafka starts what the relay writes to.
func (s *soak) startKafka(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	if s.cfg.replicated {
		s.cluster = &members{Replicated: kafkatest.StartReplicated(t)}
		s.broker = s.cluster
		return s.cluster.Cluster
	}
	if s.cfg.fake == nil {
		var proxies []*faultproxy.Proxy
		for _, r := range s.relays {
			proxies = append(proxies, r.toBroker)
		}
		broker := kafkatest.Start(t, kafkatest.Config{Proxies: proxies})
		s.broker = broker
		return broker.Cluster
	}
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(s.relays[0].toBroker.Listen))
	stampBatches(fake)
	s.cfg.fake(fake)
	return fake.Cluster
}

// journalFile opens the file that OUTBOX_TEST_JOURNAL names, nil if it names none.
func journalFile(t *testing.T) io.Writer {
	t.Helper()
	path := os.Getenv("OUTBOX_TEST_JOURNAL")
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	rig.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// endRelays kills the relays, and shows their logs if the test has failed.
func (s *soak) endRelays(t *testing.T) {
	t.Helper()
	if t.Failed() && s.before != nil {
		t.Logf("the log of the relay that was stopped or killed last:\n%s", rig.Tail(s.before.Stderr.String(), 20))
	}
	for _, i := range s.relays {
		r := i.process.Load()
		if r == nil {
			continue
		}
		_ = r.Cmd.Process.Kill()
		<-r.Done
		if t.Failed() {
			t.Logf("the log of the last %s:\n%s", i.name, rig.Tail(r.Stderr.String(), 60))
		}
	}
}

// launch starts a relay. The previous one must have ended.
func (s *soak) launch(i *instance) error {
	args := []string{"run", "-c", i.config}
	if s.cfg.refill {
		args = append(args, "--set", "source.on_slot_loss=refill")
	}
	r, err := rig.Launch(s.binary, args...)
	if err == nil {
		i.process.Store(r)
	}
	return err
}

// recordKafka hands a record of Kafka to the oracle.
func (s *soak) recordKafka(rec *kgo.Record) {
	r := &Record{
		Record: delivery.Record{
			Coordinates: delivery.Coordinates{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset},
			Key:         rec.Key, Value: rec.Value,
		},
		Producer: Producer{ID: rec.ProducerID, Epoch: rec.ProducerEpoch},
		Seen:     time.Now(),
	}
	for _, h := range rec.Headers {
		if h.Key != encode.LSNHeader || !positionOfRow.Match(h.Value) { // which the writer of the event does not know
			r.Headers = append(r.Headers, delivery.Header{Key: h.Key, Value: string(h.Value)})
		}
	}
	s.record(r, rec.Timestamp)
}

// positionOfRow matches a commit LSN and the index of a row.
var positionOfRow = regexp.MustCompile(`^[0-9A-F]+/[0-9A-F]+:[0-9]+$`)

// record hands a record to the oracle, which the broker has stored at a time.
func (s *soak) record(r *Record, stored time.Time) {
	if s.cfg.refill {
		s.delivered.take(r)
	}
	checker := s.checker
	if s.parked != nil {
		other := s.parked.deadLetters
		if s.parked.take(r) {
			checker, other = other, checker
		}
		other.Appears(r.Producer, r.Seen)
	}
	if e, ok := checker.Record(r); ok {
		s.confirms.Stored(e, r.Coordinates, stored)
	}
}

// broke notes a violation that the soak itself has found.
func (s *soak) broke(kind delivery.Kind, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, Violation{
		Violation: delivery.Violation{Kind: kind, Detail: fmt.Sprintf(format, args...)}, At: time.Now(),
	})
}

// found returns every violation so far, those that say most first.
func (s *soak) found() []Violation {
	records, _ := s.checker.Violations()
	if s.parked != nil {
		deadLetters, _ := s.parked.deadLetters.Violations()
		records = append(records, deadLetters...)
	}
	positions, _ := s.confirms.Violations()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append(records, positions...), s.violations...)
}

// background runs what happens beside the strikes, until stop is called; that waits.
func (s *soak) background(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.writers.Work(ctx); err != nil {
			t.Errorf("writers: %v", err)
		}
	})
	wg.Go(func() { s.housekeeping(ctx) })
	if s.parked != nil {
		admin := s.kafka.Admin(t)
		wg.Go(func() { s.operate(ctx, admin) })
	}
	return sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

// sample watches slot and relay until stop is called.
func (s *soak) sample(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	sampler := &Sampler{DSN: s.db.DSN, Slot: soakSlot, Interval: 50 * time.Millisecond, PIDs: s.pids, Each: s.sampled}
	done := make(chan struct{})
	go func() { // waited for by stop
		defer close(done)
		sampler.Run(ctx)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

func (s *soak) pids() []int {
	var pids []int
	for _, i := range s.relays {
		if r := i.process.Load(); r != nil {
			pids = append(pids, r.Cmd.Process.Pid)
		}
	}
	return pids
}

func (s *soak) sampled(now Sample) {
	if now.Confirmed != 0 {
		s.confirms.Slot(now.At, now.Confirmed)
	}
	s.delivered.sample(now.At, s.checker.Progress().Rows)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples++
	if s.holding.sample(now) && s.cfg.heldWithin > 0 {
		s.violations = append(s.violations, Violation{At: now.At, Violation: delivery.Violation{
			Kind: Unheld, Detail: fmt.Sprintf("no relay has held the slot for more than %v, and the server was there", s.holding.limit),
		}})
	}
	s.peak.Retained = max(s.peak.Retained, now.Retained)
	s.peak.Resident = max(s.peak.Resident, now.Resident)
}

// housekeeping makes checkpoints, at which slots are saved, and deletes old rows, of which all are delivered.
func (s *soak) housekeeping(ctx context.Context) {
	retention := "5 s"
	if s.cfg.refill {
		retention = "90 s"
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		_ = s.ask(ctx, func(conn *pgx.Conn) error { // the server may be away
			if _, err := conn.Exec(ctx, `CHECKPOINT`); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, `DELETE FROM outbox WHERE created_at < now() - $1::interval`, retention)
			return err
		})
	}
}

// ask runs f with a connection, not through any proxy.
func (s *soak) ask(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.db.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}
