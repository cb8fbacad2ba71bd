package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are the options of a demo. The zero value needs no servers.
type Options struct {
	// For is how long the order service runs. Zero means until ctx ends.
	For time.Duration
	// Rate is its number of transactions per second, each with one or two events. Zero means 200.
	Rate int
	// DSN is a database to use instead of the private server. wal_level must be logical, and the
	// role must have REPLICATION and rights to create schemas and publications. The demo creates
	// its own schema, publication and slot, and drops them at the end.
	DSN string
	// Sink is the kind of broker: a section below sink in a configuration. Empty means kafka.
	Sink string
	// Brokers are addresses of a broker of this kind to use instead of one that the demo starts. The
	// demo creates its own destinations, and deletes them at the end.
	Brokers []string
	// Chaos makes the relay and a standby processes of their own, and kills or freezes them or cuts their
	// connections every few seconds. It needs Kafka, and connections are cut only to servers that the demo
	// starts. A duplicate is then an error.
	Chaos bool
	// StrikeEvery is the number of records between two strikes of Chaos. Zero means those of about two seconds.
	StrikeEvery int
	// Term is the value of TERM: a dumb terminal gets lines instead of a panel.
	Term string
	// Version of this program and the address of its documentation, for the live page.
	Version, Docs string
	// NoColor is whether NO_COLOR is set (https://no-color.org).
	NoColor bool
}

const defaultRate = 200

// ErrBroken is the error for a committed row that did not arrive or arrived out of order, or a record without a
// committed row. With Options.Chaos also for a duplicate. It would be a bug of the relay.
var ErrBroken = errors.New("the records differ from the committed rows")

// Run runs the demo. It draws on stdout, which may be a terminal, and writes warnings of the relay to stderr at the end.
// After opts.For, or when ctx ends, it prints the summary and returns nil.
//
// When Run returns, also with an error, it has removed everything that it created. The program must have called
// pgserver.Init.
func Run(ctx context.Context, opts Options, stdout, stderr io.Writer) error {
	if opts.For < 0 || opts.Rate < 0 {
		return errors.New("demo: negative duration or rate")
	}
	kind, err := findKind(opts)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	opts.Rate = cmp.Or(opts.Rate, defaultRate)
	var warnings bytes.Buffer
	s := newScreen(stdout, opts)
	log := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d := &demo{
		opts: opts, screen: s, ledger: newLedger(), log: log,
		rig: &rig{opts: opts, kind: kind, screen: s, names: newNames(opts), log: log},
	}
	err = d.run(ctx)
	err = errors.Join(err, d.rig.tearDown(ctx))
	s.close()
	_, _ = warnings.WriteTo(stderr)
	return err
}

// A demo is one run of the demo.
type demo struct {
	opts   Options
	screen *screen
	rig    *rig
	ledger *ledger
	log    *slog.Logger

	relay    relaying
	crew     *crew // relay, with Options.Chaos; otherwise nil
	shop     *shop
	consumer *consumer
}

func (d *demo) run(ctx context.Context) error {
	about := "  an order service, the relay and a consumer, in this process"
	if d.opts.Chaos {
		about = "  an order service, two relays that are killed and frozen, and a consumer"
	}
	d.screen.say("", "  "+d.screen.style.Bold("outbox-cdc-demo")+d.screen.style.Dim(about), "")
	if err := d.rig.setUp(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	if err := d.openRelay(ctx); err != nil {
		return err
	}
	d.shop = &shop{pool: d.rig.pool, ledger: d.ledger, topic: d.rig.broker.destination, rate: d.opts.Rate}
	d.consumer = &consumer{broker: d.rig.broker, ledger: d.ledger, shown: arrivalsShown}

	// The parts run until they are stopped in order, or until one of them fails.
	g, running := errgroup.WithContext(context.WithoutCancel(ctx))
	relaying, stopRelay := context.WithCancel(running)
	consuming, stopConsumer := context.WithCancel(running)
	defer stopRelay()
	defer stopConsumer()
	relayDone := make(chan struct{})
	g.Go(func() error {
		defer close(relayDone)
		return d.relay.run(relaying)
	})
	g.Go(func() error { return d.consumer.run(consuming) })
	g.Go(func() error { return d.relay.serve(consuming) })

	performed, err := d.perform(ctx, running)
	stopRelay() // it first delivers the records in flight, which the consumer must receive
	<-relayDone
	if performed && err == nil {
		err = d.readToTheEnd(running)
	}
	stopConsumer()
	if failed := g.Wait(); failed != nil {
		err = failed // other errors are consequences
	}
	if performed {
		return d.conclude(ctx, err)
	}
	return err
}

func (d *demo) openRelay(ctx context.Context) (err error) {
	if !d.opts.Chaos {
		d.relay, err = d.openInProcess(ctx)
		return err
	}
	d.crew, err = d.openCrew(ctx)
	d.relay = d.crew
	return err
}

// readToTheEnd waits until the consumer has read all that the broker has stored, if the broker can say so: nobody
// waits for a duplicate.
func (d *demo) readToTheEnd(ctx context.Context) error {
	if d.rig.broker.readAll == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := d.rig.broker.readAll(ctx); err != nil {
		return fmt.Errorf("read to the end of the topics: %w", err)
	}
	return nil
}

// unlessInterrupted returns err, or nil if the demo was interrupted before the start.
func unlessInterrupted(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// perform waits for the first record, runs the order service until ctx or running ends or the time is over, and, unless that failed, waits
// for the records in flight. It reports whether there is a result.
func (d *demo) perform(ctx, running context.Context) (performed bool, err error) {
	starting, cancel := eitherDone(ctx, running)
	defer cancel()
	if err := d.firstRecord(starting); err != nil {
		return false, unlessInterrupted(starting, err)
	}
	d.ledger.restart()

	watch := d.watch(running)
	defer watch.end()
	selling, stop := eitherDone(ctx, running)
	defer stop()
	if d.opts.For > 0 {
		selling, stop = context.WithTimeout(selling, d.opts.For)
		defer stop()
	}
	g, selling := errgroup.WithContext(selling)
	g.Go(func() error { return d.shop.run(selling) })
	if d.crew != nil {
		g.Go(func() error { return d.crew.striker.run(selling) })
	}
	if err = g.Wait(); err == nil {
		d.drain(running)
	}
	return true, err
}

// eitherDone returns a context that ends with a or b.
func eitherDone(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

const (
	firstTimeout = 45 * time.Second // for the first record; longer than the relay's startup_timeout
	drainTimeout = 10 * time.Second // without progress
	pollInterval = 2 * time.Millisecond
)

// firstRecord waits for the relay to stream and for the first order to arrive.
func (d *demo) firstRecord(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	err := d.screen.step("relay", func(func(string)) (string, error) {
		return "streams from the slot to " + d.rig.kind.title, until(ctx, func() bool {
			state, _ := d.relay.standing()
			return state == relayStreaming
		})
	})
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	err = d.screen.step("first order", func(func(string)) (string, error) {
		if err := d.shop.transact(ctx, 1); err != nil {
			return "", err
		}
		if err := until(ctx, func() bool { return d.ledger.counts().records > 0 }); err != nil {
			return "", err
		}
		first, _ := d.ledger.latencies(time.Now())
		return "at the consumer " + formatDuration(first.Max()) + " after COMMIT", nil
	})
	if err != nil {
		return fmt.Errorf("deliver the first record: %w", err)
	}
	return nil
}

// until waits for a condition that other goroutines change.
func until(ctx context.Context, condition func() bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// drainPatience returns how long drain waits without progress.
func (d *demo) drainPatience() time.Duration {
	if d.opts.Chaos {
		return recoveryTimeout // the last strike may have been a moment ago
	}
	return drainTimeout
}

// drain waits for committed rows that have not arrived, as long as records arrive.
func (d *demo) drain(ctx context.Context) {
	for {
		before := d.ledger.counts()
		if before.missing == 0 {
			return
		}
		waiting, cancel := context.WithTimeout(ctx, d.drainPatience())
		err := until(waiting, func() bool { return d.ledger.counts().records > before.records })
		cancel()
		if err != nil {
			return
		}
	}
}

// conclude prints the summary of a demo that ended with err. It adds ErrBroken if the rows in the database and the
// received records differ.
func (d *demo) conclude(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shopTimeout)
	defer cancel()
	r := result{counts: d.ledger.counts(), remark: "from sending COMMIT"}
	if d.opts.DSN == "" {
		r.remark += "; this Postgres does not wait for the disk"
	}
	r.latency, _ = d.ledger.latencies(time.Now())
	rows, countErr := d.rig.committedRows(ctx)
	switch {
	case countErr == nil:
		r.rows = rows
	case err == nil:
		err = fmt.Errorf("count the rows of the outbox: %w", countErr)
	}
	r.lost = r.rows - (r.records - r.duplicates - r.invented)
	r.ended = err != nil
	if d.crew != nil {
		r.chaos = true
		r.blows, _ = d.crew.striker.read(0)
	}
	if r.broken() {
		err = errors.Join(err, fmt.Errorf("demo: %w: lost %d, out of order %d, unexpected %d, duplicates %d, %s",
			ErrBroken, r.lost, r.disordered, r.invented, r.duplicates, d.ledger.violations()))
	}
	d.screen.say(summary(r, d.screen.style)...)
	if err == nil {
		d.screen.say(next(d.rig.kind, d.screen.style)...)
	}
	return err
}
