package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A lane is one contender with one codec.
type lane struct {
	entry     *drainEntry
	contender measure.Contender
}

// lanes returns the contenders that drain a case, in the order of the report.
func (h *harness) lanes(c drainCase) []lane {
	var all []lane
	for _, e := range h.field {
		codecs := c.Compressions
		if !e.produces {
			codecs = []string{""}
		}
		for _, codec := range codecs {
			entry := &drainEntry{Contender: e.name, Compression: codec, Runs: make(series[measure.DrainResult])}
			all = append(all, lane{entry, e.with(codec)})
		}
	}
	return all
}

// drains lets every contender drain the same backlog, in several runs.
func (h *harness) drains(ctx context.Context, c drainCase) error {
	return h.backlog(ctx, c, func(b *measure.Backlog) error {
		lanes := h.lanes(c)
		table := drainTable{Case: c}
		for _, l := range lanes {
			table.Entries = append(table.Entries, l.entry)
		}
		h.report.Drains = append(h.report.Drains, table)
		for run := 1; run <= h.runs; run++ {
			for i := range lanes {
				l := turn(lanes, run, i)
				if err := h.drain(ctx, b, c.Name, l.entry, l.contender, run); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// backlog calls f with a backlog of the load of c.
func (h *harness) backlog(ctx context.Context, c drainCase, f func(*measure.Backlog) error) error {
	return h.bench(ctx, measure.Config{Topics: c.Topics, Partitions: c.Partitions}, func(w *measure.Workbench) (err error) {
		h.progress.Phase = c.Name
		began := time.Now()
		b, err := w.Write(ctx, c.load())
		if err != nil {
			return err
		}
		h.logf("%s: %s rows written in %.1f s", c.Name, terminal.Number(c.Rows), time.Since(began).Seconds())
		defer func() {
			if closing := b.Close(ctx); err == nil {
				err = closing
			}
		}()
		return f(b)
	})
}

// drain makes one measurement.
func (h *harness) drain(ctx context.Context, b *measure.Backlog, name string, e *drainEntry, by measure.Contender, run int) error {
	what := strings.TrimSpace(name + ": " + by.Name() + " " + e.Compression)
	h.progress.Phase = fmt.Sprintf("%s, run %d", name, run)
	limit := patience + time.Duration(b.Load.Rows)*time.Second/slowestRate
	return h.attempt(ctx, what, limit, func(ctx context.Context) error {
		r, err := b.Drain(ctx, by)
		if err != nil {
			return err
		}
		e.Runs[run] = r
		if r.Verdict != nil {
			h.report.checked(by.Name(), r.Rows, *r.Verdict)
		}
		h.logf("%s, run %d: %s rows/s, %s CPU-s per million, %s MB", what, run,
			figure(rowRate(r)), figure(cpuPerMillion(r)), figure(drainMemory(r)))
		return nil
	})
}
