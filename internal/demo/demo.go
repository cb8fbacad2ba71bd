package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Options are what a demo can be asked for. The zero value is the demo for a machine without
// anything.
type Options struct {
	// For is how long the order service does business. Zero means until ctx is done.
	For time.Duration
	// Rate is how many transactions it does a second, each with one or two events. Zero means 200.
	Rate int
	// DSN is a database to use in place of the embedded server. Its wal_level must be logical and
	// the role must be allowed to replicate and to create schemas, publications and slots. The
	// demo works in a schema, publication and slot of its own and removes them at the end.
	DSN string
	// Brokers are a Kafka to use in place of the one in this process. The demo makes topics of its
	// own and deletes them at the end.
	Brokers []string
	// Term is the value of TERM: a dumb terminal gets lines instead of a panel.
	Term string
	// Version of this program, as the live page shows it.
	Version string
	// NoColor is whether NO_COLOR is set (https://no-color.org).
	NoColor bool
}

const defaultRate = 200

// ErrBroken says that something that was committed did not arrive, or arrived out of order, or that
// something arrived that was not committed. It is what a demo never returns.
var ErrBroken = errors.New("what was delivered is not what was committed")

// Run performs the demo: on stdout, which may be a terminal, with warnings of the relay on stderr
// at the end. It blocks until opts.For is over or ctx is done, both of which end in the summary and
// return nil, or until something fails.
//
// Everything that was started or created is gone when it returns, whatever it returns. The program
// must have called pgserver.Init, see there.
func Run(ctx context.Context, opts Options, stdout, stderr io.Writer) error {
	if opts.For < 0 || opts.Rate < 0 {
		return errors.New("demo: negative duration or rate")
	}
	opts.Rate = cmp.Or(opts.Rate, defaultRate)
	var warnings bytes.Buffer
	s := newScreen(stdout, opts)
	d := &demo{
		opts: opts, screen: s, ledger: newLedger(), rig: &rig{opts: opts, screen: s, names: newNames(opts)},
		log: slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	err := d.run(ctx)
	err = errors.Join(err, d.rig.tearDown(ctx))
	s.close()
	_, _ = warnings.WriteTo(stderr)
	return err
}

// A demo is one performance.
type demo struct {
	opts   Options
	screen *screen
	rig    *rig
	ledger *ledger
	log    *slog.Logger

	relay    *relay.Relay
	shop     *shop
	consumer *consumer
}

func (d *demo) run(ctx context.Context) error {
	d.screen.say("", "  "+d.screen.style.Bold("outbox-cdc-demo")+
		d.screen.style.Dim("  an order service, the relay and a consumer, in this process"), "")
	if err := d.rig.setUp(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	relayCfg := d.rig.relayConfig()
	page, err := d.page(ctx, &relayCfg)
	if err != nil {
		return err
	}
	relay, err := relay.New(relayCfg, d.log)
	if err != nil {
		return err
	}
	d.relay = relay
	d.shop = &shop{pool: d.rig.pool, ledger: d.ledger, topic: d.rig.names.topic, rate: d.opts.Rate}
	d.consumer = &consumer{client: d.rig.consumer, ledger: d.ledger, shown: arrivalsShown}

	// The parts run until they are stopped, one after the other, or until one of them fails.
	g, running := errgroup.WithContext(context.WithoutCancel(ctx))
	relaying, stopRelay := context.WithCancel(running)
	consuming, stopConsumer := context.WithCancel(running)
	defer stopRelay()
	defer stopConsumer()
	relayDone := make(chan struct{})
	g.Go(func() error {
		defer close(relayDone)
		return d.relay.Run(relaying)
	})
	g.Go(func() error { return d.consumer.run(consuming) })
	g.Go(func() error { return page.Run(consuming, d.relay.Stat) })

	performed, err := d.perform(ctx, running)
	stopRelay() // it hands over what it holds, and the consumer must see that
	<-relayDone
	stopConsumer()
	if failed := g.Wait(); failed != nil {
		err = failed // and the rest is a consequence
	}
	if performed {
		return d.conclude(ctx, err)
	}
	return err
}

// page opens the relay's live page and says where it is.
func (d *demo) page(ctx context.Context, relay *relay.Config) (*admin.Server, error) {
	page := admin.New(admin.Config{
		Name: relay.Name, Version: d.opts.Version,
		Source:      net.JoinHostPort(relay.Source.Conn.Host, strconv.Itoa(int(relay.Source.Conn.Port))) + "/" + relay.Source.Conn.Database,
		Publication: relay.Source.Publication, Slot: relay.Source.Slot, Brokers: d.rig.brokers,
	}, d.log)
	return page, d.screen.step("live page", func(func(string)) (string, error) {
		if err := page.Listen(ctx, "127.0.0.1:0"); err != nil {
			return "", err
		}
		page.Observe(relay)
		return "http://" + page.Addr() + "/", nil
	})
}

// unlessInterrupted returns err, or nil when the demo was ended before it began.
func unlessInterrupted(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// perform sends a first record through, does business until ctx or running is done or the time is
// over, and waits for what is under way. It reports whether there is something to sum up.
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
	err = d.shop.run(selling)
	d.drain(running)
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
	firstTimeout = 45 * time.Second // for the first record; the relay has given up before
	drainTimeout = 10 * time.Second // without any progress
	pollInterval = 2 * time.Millisecond
)

// firstRecord waits for the relay to stream and for the first order to arrive.
func (d *demo) firstRecord(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	err := d.screen.step("relay", func(func(string)) (string, error) {
		return "reads the slot, writes to the broker", until(ctx, func() bool { return d.relay.Stat().State == relay.Streaming })
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
		return "at the consumer " + span(first.Max()) + " after COMMIT", nil
	})
	if err != nil {
		return fmt.Errorf("send the first record through: %w", err)
	}
	return nil
}

// until waits for condition, which changes in other goroutines.
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

// drain waits for what was committed and is not received, as long as something comes.
func (d *demo) drain(ctx context.Context) {
	for {
		before := d.ledger.counts()
		if before.missing == 0 {
			return
		}
		waiting, cancel := context.WithTimeout(ctx, drainTimeout)
		err := until(waiting, func() bool { return d.ledger.counts().records > before.records })
		cancel()
		if err != nil {
			return
		}
	}
}

// conclude prints the summary of a demo that ended with err. It adds ErrBroken to that if what the
// database holds and what the consumer has seen are not the same.
func (d *demo) conclude(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shopTimeout)
	defer cancel()
	r := result{counts: d.ledger.counts(), remark: "from sending COMMIT"}
	if d.opts.DSN == "" {
		r.remark += ", which here waits for no disk"
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
	if r.broken() {
		err = errors.Join(err, fmt.Errorf("demo: %w: lost %d, out of order %d, invented %d, %s",
			ErrBroken, r.lost, r.disordered, r.invented, d.ledger.checker.Violations()))
	}
	d.screen.say(summary(r, d.screen.style)...)
	if err == nil {
		d.screen.say(next(d.screen.style)...)
	}
	return err
}
