package twin

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// Streams of random numbers: what one of them has to decide does not shift another.
const (
	drawWorld uint64 = iota + 1
	drawPostgres
	drawKafka
	drawWriter
	drawNemesis
	drawOperator
)

// A world is a relay with its servers and its operator.
type world struct {
	*testing.T
	seed     uint64
	net      *network
	history  *history
	postgres *postgres
	kafka    *cluster
	cfg      relay.Config         // but for the sink
	sink     kafka.Config         // but for its connections
	wrap     func(*conn) net.Conn // of connections to Postgres; for mutations
	deaf     time.Duration        // how late a run hears that it is to stop; for mutations

	orders  chan order
	stopped chan error // what a run that was told to stop has returned
	zombies sync.WaitGroup
	runs    int
}

// An order is for the operator.
type order int

const (
	kill order = iota // at once
	term              // SIGTERM, then a new start
	quit              // SIGTERM, and no new start
)

func (o order) String() string { return [...]string{"kill", "term", "quit"}[o] }

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, drawWorld))
	w := &world{
		T: t, seed: seed, net: newNetwork(seed),
		history: newHistory(), orders: make(chan order), stopped: make(chan error),
		wrap: func(c *conn) net.Conn { return c },
	}
	w.postgres = newPostgres(w.net, w.history, rand.New(rand.NewPCG(seed, drawPostgres)))
	partitions := map[string]int{topics[0]: 1 + rng.IntN(4), topics[1]: 1 + rng.IntN(2), deadLetters: 1}
	w.kafka = newKafka(w.net, w.history, rand.New(rand.NewPCG(seed, drawKafka)), 1+rng.IntN(3), partitions)
	w.cfg = relay.Config{
		PositionTopic: positions,
		Name:          "twin",
		Source:        replication.Config{Publication: "pub", Slot: "slot", StatusInterval: time.Duration(100+rng.IntN(900)) * time.Millisecond},
		Route:         encode.Config{Columns: encode.DefaultColumns(), Topic: "${route}"},
	}
	w.sink = kafka.Config{Brokers: w.kafka.addrs(), WindowRecords: []int{0, 1, 10, 100}[rng.IntN(4)], ConnectionsPerBroker: 1 + rng.IntN(3)}
	w.cfg.DrainTimeout = time.Duration(1+rng.IntN(25)) * time.Second
	if rng.IntN(8) == 0 {
		w.sink.Compression = "gzip"
	}
	if rng.IntN(4) == 0 {
		w.sink.CreateTopics = &kafka.TopicSpec{Partitions: 1 + rng.Int32N(4)}
		clear(w.kafka.topics)
	}
	if rng.IntN(5) == 0 {
		w.cfg.PositionTopic = ""
	}
	w.history.kept = w.cfg.PositionTopic != ""
	if rng.IntN(2) == 0 {
		w.cfg.DeadLetterTopic = deadLetters
		w.history.deadLetter = deadLetters
	}
	return w
}

// A process is one run of the relay.
type process struct {
	host   *host
	cancel context.CancelFunc
	told   chan struct{} // closed when it has been told to end
	ended  chan struct{} // closed when it has
	err    error         // what Run has returned
}

// launch starts the relay.
func (w *world) launch() *process {
	w.runs++
	w.history.launched(w.runs)
	ctx, cancel := context.WithCancel(w.Context())
	p := &process{host: newHost(w.net, w.runs), cancel: cancel, told: make(chan struct{}), ended: make(chan struct{})}
	cfg := w.cfg
	dialing := w.sink
	dialing.Dial = p.host.dial
	cfg.Sink = dialing
	cfg.Source.Conn = w.source(p.host)
	log := slog.New(slog.NewTextHandler(&journal{w.history, w.runs}, nil))
	c, err := relay.New(cfg, log)
	if err != nil {
		panic(err) // it is always the same configuration
	}
	run := w.runs
	w.zombies.Go(func() {
		p.err = c.Run(ctx)
		w.history.note("run %d: ended: %v", run, p.err)
		cancel()
		p.host.leave()
		close(p.ended)
	})
	w.zombies.Go(func() { w.hurry(p, run) })
	return p
}

// hurry judges how long a run takes to end once it was told to.
func (w *world) hurry(p *process, run int) {
	select {
	case <-p.ended:
		return
	case <-p.told:
	}
	began, limit := time.Now(), w.cfg.DrainTimeout+12*time.Second // the last report and the goodbyes
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		w.history.note("run %d: took %s to end", run, time.Since(began))
	case <-timer.C:
		w.history.violated("run %d: has not ended after %s", run, limit)
	}
}

// source says how to reach the server from h.
func (w *world) source(h *host) *pgconn.Config {
	cfg, err := pgconn.ParseConfig("host=postgres port=5432 user=u database=app sslmode=disable connect_timeout=10")
	if err != nil {
		panic(err)
	}
	cfg.LookupFunc = func(_ context.Context, name string) ([]string, error) { return []string{name}, nil }
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := h.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return w.wrap(c.(*conn)), nil
	}
	return cfg
}

// operate runs the relay, and starts it again, until it is ordered not to. Sometimes the next
// run is there before the one it follows has ended, and waits for the slot.
func (w *world) operate() {
	rng := rand.New(rand.NewPCG(w.seed, drawOperator))
	for p := w.launch(); ; {
		select {
		case <-p.ended:
			w.diagnose(p)
			time.Sleep(time.Second)
			p = w.launch()
			continue
		case o := <-w.orders:
			w.history.note("operator: %s", o)
			var standby *process
			if o != quit && rng.IntN(3) == 0 {
				standby = w.launch()
				time.Sleep(time.Duration(rng.IntN(5000)) * time.Millisecond)
			}
			if o == kill {
				p.host.kill(rng) // its remains end by themselves
			}
			time.AfterFunc(w.deaf, p.cancel)
			close(p.told)
			if o != kill {
				<-p.ended
				w.diagnose(p)
			}
			switch {
			case o == quit:
				w.stopped <- p.err
				return
			case standby != nil:
				p = standby
				continue
			case o == kill:
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			p = w.launch()
		}
	}
}

// diagnose does what a run's exit code asks for. In a world in which nobody touches slot,
// publication and record most must not occur, and that a server is away may end a run only
// before its first session.
func (w *world) diagnose(p *process) {
	code := relay.ExitCode(p.err)
	switch {
	case code == relay.ExitOK:
	case (code == relay.ExitSource || code == relay.ExitSink) && !w.history.streamed(p.host.run):
	case code == relay.ExitBadRecord && w.cfg.DeadLetterTopic == "":
		w.kafka.cure()
	default:
		w.history.violated("run %d: exit code %d: %v", p.host.run, code, p.err)
	}
}

// A journal writes the relay's log into the history.
type journal struct {
	history *history
	run     int
}

func (j *journal) Write(b []byte) (int, error) {
	_, line, _ := strings.Cut(strings.TrimSpace(string(b)), " ") // without the time
	if strings.Contains(line, " msg=streaming ") {
		j.history.streaming(j.run)
	}
	j.history.note("run %d: %s", j.run, line)
	return len(b), nil
}

// maxRows is about how many a seed has: at one transaction a millisecond it would be too many.
const maxRows = 3000

// write commits transactions until ctx ends.
func (w *world) write(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.seed, drawWriter))
	pause := []float64{1, 20, 200, 1000}[rng.IntN(4)]
	keys := 1 + rng.IntN(8)
	poison := rng.IntN(4) == 0
	for written := 0; written < maxRows && ctx.Err() == nil; {
		w.postgres.commit(func(tx *transaction) {
			rows := 0 // somebody else's
			switch rng.IntN(10) {
			case 0, 1, 2:
			case 3:
				rows = rng.IntN(300)
			default:
				rows = 1 + rng.IntN(4)
			}
			written += rows
			for range rows {
				size := rng.IntN(50)
				if rng.IntN(30) == 0 {
					size = rng.IntN(9000)
				}
				if rng.IntN(1000) == 0 {
					size = 300_000 // more than the relay's buffers
				}
				topic := topics[max(rng.IntN(4)-2, 0)]
				tx.rows = append(tx.rows, w.postgres.newRow(topic, fmt.Sprintf("key-%d", rng.IntN(keys)), size, poison && rng.IntN(100) == 0))
			}
		})
		w.sleep(ctx, time.Duration(rng.ExpFloat64()*pause*float64(time.Millisecond)))
	}
}

// sleep returns early when ctx ends.
func (w *world) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
