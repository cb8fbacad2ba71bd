package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

const (
	flowPayload = 200             // bytes, of latency measurements
	patience    = 2 * time.Minute // timeout of a measurement, in addition to its planned duration
	slowestRate = 1000            // rows per second; a slower drain is aborted
	warmUpRows  = 100_000

	perPartition = 100 * time.Millisecond // timeout to create one and to write its first records, beside patience
)

// A harness makes measurements and adds them to its report.
type harness struct {
	on    *site
	field []entrant
	runs  int
	codec string // for measurements that do not compare codecs
	keep  bool   // do not drop the objects on the servers
	own   *servers

	outageRows int

	log      *slog.Logger
	lines    io.Writer // gets a line per measurement
	progress *command.Progress
	report   *report
}

// measure makes all measurements of p. It adds a failed measurement to the report and continues. It
// returns an error if ctx is done, or if a server rejects us before the first measurement.
func (h *harness) measure(ctx context.Context, p plan) error {
	if err := h.warmUp(ctx, p); err != nil {
		return err
	}
	for _, c := range p.drains {
		if err := h.attempt(ctx, c.Name, 0, func(ctx context.Context) error { return h.drains(ctx, c) }); err != nil {
			return err
		}
	}
	if err := h.attempt(ctx, "latency", 0, func(ctx context.Context) error { return h.latencies(ctx, p) }); err != nil {
		return err
	}
	return h.attempt(ctx, "outage", 0, func(ctx context.Context) error { return h.outages(ctx, p) })
}

// attempt calls f, with a timeout if limit is not 0, and adds its error to the report as a failure. It
// returns an error in the same cases as measure.
func (h *harness) attempt(ctx context.Context, what string, limit time.Duration, f func(context.Context) error) error {
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
		defer cancel()
	}
	err := f(limited)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, refused := errors.AsType[*measure.ServerError](err); refused && len(h.report.Checks) == 0 {
		return err
	}
	if err != nil {
		h.report.Failures = append(h.report.Failures, fmt.Sprintf("%s: %v", what, err))
		h.logf("%s: %v", what, err)
	}
	return nil
}

// logf replaces the progress bar with a line.
func (h *harness) logf(format string, args ...any) {
	h.progress.End()
	fmt.Fprintf(h.lines, format+"\n", args...)
}

// bench calls f with a new workbench.
func (h *harness) bench(ctx context.Context, cfg measure.Config, f func(*measure.Workbench) error) (err error) {
	limit := patience + time.Duration(cfg.Topics)*time.Duration(cfg.Partitions)*perPartition
	setUp, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	cfg.ReplicationFactor, cfg.Keep = h.on.replicationFactor, h.keep
	cfg.Progress = func(p measure.Progress) { h.progress.Show(ctx, p.Doing, p.Done, p.Total) }
	w, err := measure.NewWorkbench(setUp, h.on.Servers, cfg)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	defer func() {
		if closing := w.Close(ctx); err == nil {
			err = closing
		}
		for _, l := range w.Kept() {
			h.log.InfoContext(ctx, "object kept", slog.String("object", l.Object), slog.String("drop", l.Drop))
		}
	}()
	return f(w)
}

// producers are those whose records can be seen.
func (h *harness) producers() []entrant {
	var some []entrant
	for _, e := range h.field {
		if e.produces {
			some = append(some, e)
		}
	}
	return some
}

// turn returns the i-th to go in a run: in every run somebody else begins.
func turn[T any](all []T, run, i int) T { return all[(run-1+i)%len(all)] }

// warmUp lets the broker's compiler see some work, uncounted but checked: until
// a JVM has compiled what it does, it takes more than a core of what is measured.
func (h *harness) warmUp(ctx context.Context, p plan) error {
	producers := h.producers()
	if len(producers) == 0 {
		return nil
	}
	rows := warmUpRows
	for _, c := range p.drains {
		rows = min(rows, c.Rows)
	}
	c := drainCase{
		Name: "warm-up", Rows: rows, PayloadBytes: flowPayload, PerTransaction: 10, Spread: spreadOver(1, somePartitions),
	}
	return h.attempt(ctx, c.Name, 0, func(ctx context.Context) error {
		return h.backlog(ctx, c, func(b *measure.Backlog) error {
			uncounted := &drainEntry{Runs: make(series[measure.DrainResult])}
			began := time.Now()
			for run := 1; run == 1 || time.Since(began) < p.warmUp && len(uncounted.Runs) == run-1; run++ {
				if err := h.drain(ctx, b, c.Name, uncounted, producers[0].with(h.codec), run); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
