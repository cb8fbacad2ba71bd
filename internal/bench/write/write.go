// Package write measures the cost of an event for the transaction that writes it. It runs pgbench's TPC-B-like
// transaction with and without an event, on a Postgres that it starts.
//
// The variants take turns, in many short rounds. Each is compared with the transaction without an event in the
// same round. The result is the median of these ratios and the range of their middle half. So a busy machine
// makes the range wider, but not the result wrong.
//
// There are two servers. On "cpu" a commit does not wait, so CPU time decides. On "commit" it waits for 4 ms, as
// for a disk or a synchronous standby.
package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// Options configure a measurement.
type Options struct {
	Rounds  int
	Round   time.Duration // of one variant
	Clients int           // transactions at a time
	Scale   int           // scale factor of pgbench: 100,000 accounts each; at least Clients, so that clients do not wait for each other
	Major   int           // of Postgres; 0: any
}

// Run measures on both servers. It calls progress with the number of finished rounds of a server.
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

// A server is a configuration of Postgres.
type server struct {
	name     string
	settings map[string]string
}

func servers() []server {
	// Only the load writes: no checkpoint during the measurement, no vacuum.
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
	for round := range o.Rounds + 1 { // the first round fills caches and writes full pages; it is not counted
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
