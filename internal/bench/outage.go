package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// outages takes the broker away from each relay.
func (h *harness) outages(ctx context.Context, p plan) error {
	if p.outage == 0 {
		return nil
	}
	return h.bench(ctx, measure.Config{Topics: 1, Partitions: somePartitions}, func(w *measure.Workbench) error {
		for run := 1; run <= h.runs; run++ {
			for _, e := range h.relays() {
				if err := h.outage(ctx, w, e, p.outage, run); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// relays are the builds of the relay.
func (h *harness) relays() []measure.Relay {
	var some []measure.Relay
	for _, e := range h.field {
		if r, ok := e.with(h.codec).(measure.Relay); ok {
			some = append(some, r)
		}
	}
	return some
}

func (h *harness) outage(ctx context.Context, w *measure.Workbench, relay measure.Relay, d time.Duration, run int) error {
	relay.Settings = maps.Clone(relay.Settings)
	maps.Copy(relay.Settings, h.on.throughLink)
	o := measure.Outage{
		Load:     measure.Load{Rows: h.outageRows + 1, PayloadBytes: flowPayload, PerTransaction: 10, Keys: someKeys},
		Duration: d, Begin: h.own.away, End: h.own.back,
	}
	i := slices.IndexFunc(h.report.Outages, func(o outage) bool { return o.Contender == relay.Name() })
	if i < 0 {
		i = len(h.report.Outages)
		h.report.Outages = append(h.report.Outages, outage{relay.Name(), make(series[measure.OutageResult])})
	}
	what := "outage: " + relay.Name()
	h.progress.Phase = fmt.Sprintf("outage, run %d", run)
	limit := patience + d + time.Duration(h.outageRows)*time.Second/slowestRate
	return h.attempt(ctx, what, limit, func(ctx context.Context) error {
		r, err := w.Outage(ctx, relay, o)
		if err != nil {
			return err
		}
		h.report.Outages[i].Runs[run] = r
		h.report.checked(relay.Name(), r.Rows, r.Verdict)
		h.logf("%s, run %d: %s rows in %.1f s, memory %s MB before, at most %s MB, caught up in %.1f s", what, run,
			terminal.Number(r.Rows), r.Down.Seconds(), figure(megabytes(r.Before)), figure(megabytes(r.During)), r.CatchUp.Seconds())
		return nil
	})
}
