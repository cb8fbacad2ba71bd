package twin

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
)

// A replica is a relay of the world, with its operator. All replicas have the same configuration.
type replica struct {
	*world
	rng     *rand.Rand
	orders  chan order
	stopped chan error // the error of the run that a quit order has stopped

	mu  sync.Mutex
	now *process
}

// An order tells the operator what to do with the relay.
type order int

const (
	kill order = iota // SIGKILL, then a restart
	term              // SIGTERM, then a restart
	quit              // SIGTERM without a restart
)

func (o order) String() string { return [...]string{"kill", "term", "quit"}[o] }

// A process is one run of the relay.
type process struct {
	host   *host
	cancel context.CancelFunc
	told   chan struct{} // closed when the operator has stopped it
	ended  chan struct{} // closed when Run has returned
	err    error         // the error of Run
}

// host returns the host of the newest run.
func (r *replica) host() *host {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.host
}

// launch starts a run of the relay.
func (r *replica) launch() *process {
	w := r.world
	ctx, cancel := context.WithCancel(w.Context())
	run := int(w.runs.Add(1))
	p := &process{host: newHost(w.net, run), cancel: cancel, told: make(chan struct{}), ended: make(chan struct{})}
	r.mu.Lock()
	r.now = p
	r.mu.Unlock()
	w.history.launched(run)
	cfg := w.cfg
	cfg.Sink = w.broker.connect(p.host)
	cfg.Source.Conn = w.source(p.host)
	log := slog.New(slog.NewTextHandler(&journal{w.history, run}, nil))
	c, err := relay.New(cfg, log)
	if err != nil {
		panic(err) // the configuration is always valid
	}
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

// hurry checks how long a run takes to end after the operator has stopped it.
func (w *world) hurry(p *process, run int) {
	select {
	case <-p.ended:
		return
	case <-p.told:
	}
	began, limit := time.Now(), w.cfg.DrainTimeout+12*time.Second // the last status update, and closing the connections
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		w.history.note("run %d: took %s to end", run, time.Since(began))
	case <-timer.C:
		w.history.violated("run %d: has not ended after %s", run, limit)
	}
}

// source returns the connection configuration for the server, as seen from h.
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

// operate runs the relay and restarts it until it gets a quit order. Sometimes it starts the next run
// before the current one has ended. The next run then waits for the slot.
func (r *replica) operate() {
	for p := r.now; ; {
		select {
		case <-p.ended:
			r.diagnose(p)
			time.Sleep(time.Second)
			p = r.launch()
			continue
		case o := <-r.orders:
			r.history.note("operator: %s run %d", o, p.host.run)
			var standby *process
			if o != quit && r.rng.IntN(3) == 0 {
				standby = r.launch()
				time.Sleep(time.Duration(r.rng.IntN(5000)) * time.Millisecond)
			}
			if o == kill {
				p.host.kill(r.rng) // Run returns later
			}
			time.AfterFunc(r.deaf, p.cancel)
			close(p.told)
			if o != kill {
				<-p.ended
				r.diagnose(p)
			}
			switch {
			case o == quit:
				r.stopped <- p.err
				return
			case standby != nil:
				p = standby
				continue
			case o == kill:
				time.Sleep(time.Duration(r.rng.IntN(3000)) * time.Millisecond)
			}
			p = r.launch()
		}
	}
}

// diagnose handles the exit code of a run. Most exit codes are violations, because nobody changes the
// slot, the publication or the position record. An unavailable server may end a run only before its
// first session.
func (r *replica) diagnose(p *process) {
	code := fault.ExitCode(p.err)
	switch {
	case code == exit.OK:
	case (code == exit.Source || code == exit.Sink) && !r.history.streamed(p.host.run):
	case code == exit.BadRecord && r.cfg.DeadLetterTopic == "":
		r.broker.cure(math.MaxInt)
	case code == exit.Continuity:
		r.history.noticeGap()
		r.history.violated("run %d: exit code %d: %v", p.host.run, code, p.err)
	default:
		r.history.violated("run %d: exit code %d: %v", p.host.run, code, p.err)
	}
}

// quit stops the relay and checks its error. A relay that has lost the slot sends nothing more, and one that has just acquired
// it sends nothing yet. So their records may stay unacknowledged.
func (r *replica) quit() {
	streams := r.history.streams(r.host().run)
	r.orders <- quit
	// Connections may still be frozen, or lead to a server that has been replaced by a standby.
	// [world.rest] checks the result.
	if err := <-r.stopped; err != nil && streams && !strings.Contains(err.Error(), "may repeat what was acknowledged at last") {
		r.history.violated("a stop in peace ends with: %v", err)
	}
}

var streamingFrom = regexp.MustCompile(` msg=streaming .* from=(\S+)`)

// A journal writes the relay's log into the history.
type journal struct {
	history *history
	run     int
}

func (j *journal) Write(b []byte) (int, error) {
	_, line, _ := strings.Cut(strings.TrimSpace(string(b)), " ") // without the time
	if found := streamingFrom.FindStringSubmatch(line); found != nil {
		from, _ := pglogrepl.ParseLSN(found[1])
		j.history.streaming(j.run, from)
	}
	if strings.Contains(line, "the slot was advanced by another process") || strings.Contains(line, "refilling what the slot has not delivered") {
		j.history.noticeGap()
	}
	if strings.Contains(line, "unknown transition between states") {
		j.history.violated("run %d: %s", j.run, line)
	}
	j.history.missesMarker(line)
	j.history.note("run %d: %s", j.run, line)
	return len(b), nil
}
