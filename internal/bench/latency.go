package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// latencies measures what is not about throughput, one after the other on the
// same workbench.
func (h *harness) latencies(ctx context.Context, p plan) error {
	producers := h.producers()
	if len(producers) == 0 || len(p.rates) == 0 && !p.startUp && p.idle == 0 {
		return nil
	}
	h.report.Over = p.over
	return h.bench(ctx, measure.Config{Topics: p.over.Topics, Partitions: p.over.Partitions}, func(w *measure.Workbench) error {
		for _, rate := range p.rates {
			flow := measure.Flow{Rate: rate, Duration: p.flow, WarmUp: p.flow / 2, PayloadBytes: flowPayload, Keys: p.over.Keys}
			if err := h.latency(ctx, w, producers, flow); err != nil {
				return err
			}
		}
		return h.rest(ctx, w, producers, p)
	})
}

// latency has everybody relay a flow, run by run.
func (h *harness) latency(ctx context.Context, w *measure.Workbench, field []entrant, flow measure.Flow) error {
	table := latencyTable{Rate: flow.Rate}
	for _, e := range field {
		table.Entries = append(table.Entries, &latencyEntry{Contender: e.name, Runs: make(series[measure.LatencyResult])})
	}
	h.report.Latency = append(h.report.Latency, table)
	for run := 1; run <= h.runs; run++ {
		for i := range field {
			e := turn(field, run, i)
			what := fmt.Sprintf("%s/s: %s", terminal.Number(flow.Rate), e.name)
			h.progress.Phase = fmt.Sprintf("latency, run %d", run)
			err := h.attempt(ctx, what, patience+flow.Duration, func(ctx context.Context) error {
				r, err := w.Latency(ctx, e.with(h.codec), flow)
				if err != nil {
					return err
				}
				table.find(e.name).Runs[run] = r
				h.report.checked(e.name, r.Measured, r.Verdict)
				h.logf("%s, run %d: p50 %s ms, p99 %s ms", what, run, figure(p50(r)), figure(p99(r)))
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rest measures starting and idling.
func (h *harness) rest(ctx context.Context, w *measure.Workbench, field []entrant, p plan) error {
	if !p.startUp && p.idle == 0 {
		return nil
	}
	field = slices.DeleteFunc(slices.Clone(field), func(e entrant) bool { return !e.reads })
	for _, e := range field {
		h.report.Resting = append(h.report.Resting, resting{e.name, make(series[time.Duration]), make(series[measure.IdleResult])})
	}
	h.progress.Phase = "start-up, idle"
	for run := 1; run <= h.runs; run++ {
		for i, e := range field {
			if p.startUp {
				if err := h.startUp(ctx, w, e, h.report.Resting[i].StartUp, run); err != nil {
					return err
				}
			}
			if p.idle > 0 {
				if err := h.idle(ctx, w, e, p, h.report.Resting[i].Idle, run); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (h *harness) startUp(ctx context.Context, w *measure.Workbench, e entrant, into series[time.Duration], run int) error {
	return h.attempt(ctx, e.name+": start-up", patience, func(ctx context.Context) error {
		d, err := w.StartUp(ctx, e.with(h.codec))
		if err != nil {
			return err
		}
		into[run] = d
		h.logf("%s, run %d: started in %v", e.name, run, d.Round(time.Millisecond))
		return nil
	})
}

func (h *harness) idle(ctx context.Context, w *measure.Workbench, e entrant, p plan, into series[measure.IdleResult], run int) error {
	return h.attempt(ctx, e.name+": idle", patience+p.idle, func(ctx context.Context) error {
		r, err := w.Idle(ctx, e.with(h.codec), p.over.Keys, p.idle)
		if err != nil {
			return err
		}
		into[run] = r
		h.logf("%s, run %d: idle at %s %% of a core", e.name, run, figure(100*r.Share()))
		return nil
	})
}
