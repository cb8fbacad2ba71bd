// Write measures what an event costs the transaction that writes it: pgbench's TPC-B-like
// transaction, with and without one event, on a Postgres that it starts itself.
//
//	go run ./bench/write                      # both servers; seven minutes
//	go run ./bench/write -rounds 5 -scale 1   # is anything wrong?
//
// The variants take turns, in many short rounds, and each is compared with the transaction without
// an event of the same round: what is printed is the median of these ratios and the range of their
// middle half, so a machine that others use as well makes the range wider and not the result wrong.
//
// Two servers are measured. On "cpu" a commit waits for nothing, so that every instruction counts.
// On "commit" it waits for 4 ms, as for a disk or a synchronous standby elsewhere.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// options say how much is measured.
type options struct {
	rounds  int
	round   time.Duration // of one variant
	clients int
	scale   int // of the tables: 100,000 accounts each
	major   int // of Postgres; 0: any
}

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench/write:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("write", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 100, "rounds of all variants")
	flags.DurationVar(&o.round, "round", 250*time.Millisecond, "of one variant in a round")
	flags.IntVar(&o.clients, "clients", 8, "transactions at a time")
	flags.IntVar(&o.scale, "scale", 8, "100,000 accounts each; at least the clients, or they wait for each other")
	flags.IntVar(&o.major, "postgres", 0, "major version; 0: any that is installed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, server := range servers() {
		result, err := measureOn(ctx, server, o, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", server.name, err)
		}
		result.print(stdout)
	}
	return nil
}

// A server is a Postgres as it is configured.
type server struct {
	name     string
	settings map[string]string
}

func servers() []server {
	// Nothing but the load writes: no checkpoint in the middle, no vacuum.
	common := map[string]string{
		"shared_buffers": "512MB", "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "16GB", "full_page_writes": "on",
	}
	cpu, commit := maps.Clone(common), maps.Clone(common)
	cpu["fsync"], cpu["synchronous_commit"] = "off", "off"
	commit["fsync"], commit["commit_delay"], commit["commit_siblings"] = "on", "4000", "0"
	return []server{{"cpu", cpu}, {"commit", commit}}
}

func measureOn(ctx context.Context, s server, o options, stderr io.Writer) (_ *result, err error) {
	srv, err := pgserver.Start(ctx, pgserver.Config{Major: o.major, Settings: s.settings})
	if err != nil {
		return nil, err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, srv.Stop(last))
	}()
	l, err := newLoad(ctx, srv.DSN("postgres"), o)
	if err != nil {
		return nil, err
	}
	defer l.close(ctx)
	r := &result{server: s.name, postgres: srv.Install().String(), options: o}
	for _, v := range variants() {
		r.variants = append(r.variants, &series{name: v.name})
		if err := l.prepare(ctx, v); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	for round := range o.rounds + 1 { // the first one fills caches and makes full pages
		for i := range variants() {
			i := (i + round) % len(r.variants)
			sample, err := l.run(ctx, variants()[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.variants[i].name, err)
			}
			if round > 0 {
				r.variants[i].samples = append(r.variants[i].samples, sample)
			}
		}
		_, _ = fmt.Fprintf(stderr, "\r%s: round %d of %d ", s.name, round, o.rounds)
	}
	_, _ = fmt.Fprintln(stderr)
	return r, nil
}
