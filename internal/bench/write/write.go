// Package write measures what an event costs the transaction that writes it: pgbench's TPC-B-like
// transaction, with and without one event, on a Postgres that it starts itself.
//
// The variants take turns, in many short rounds, and each is compared with the transaction without
// an event of the same round: what is reported is the median of these ratios and the range of their
// middle half, so a machine that others use as well makes the range wider and not the result wrong.
//
// Two servers are measured. On "cpu" a commit waits for nothing, so that every instruction counts.
// On "commit" it waits for 4 ms, as for a disk or a synchronous standby elsewhere.
package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// Options say how much is measured.
type Options struct {
	Rounds  int
	Round   time.Duration // of one variant
	Clients int           // transactions at a time
	Scale   int           // of the tables: 100,000 accounts each; at least Clients, or they wait for each other
	Major   int           // of Postgres; 0: any
}

// Run measures on both servers. progress is told how many rounds of a server are done.
func Run(ctx context.Context, o Options, progress func(server string, done int)) ([]Result, error) {
	var results []Result
	for _, server := range servers() {
		r, err := measureOn(ctx, server, o, func(done int) { progress(server.name, done) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", server.name, err)
		}
		results = append(results, r.reduce())
	}
	return results, nil
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

func measureOn(ctx context.Context, s server, o Options, progress func(done int)) (_ *measured, err error) {
	srv, err := pgserver.Start(ctx, pgserver.Config{Major: o.Major, Settings: s.settings})
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
	r := &measured{server: s.name, postgres: srv.Install().String()}
	for _, v := range variants() {
		r.variants = append(r.variants, &series{name: v.name})
		if err := l.prepare(ctx, v); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	for round := range o.Rounds + 1 { // the first one fills caches and makes full pages
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
		progress(round)
	}
	return r, nil
}
