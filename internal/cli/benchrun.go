package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// A benchRun is one run of the verb bench.
type benchRun struct {
	options  benchOptions
	place    *benchPlace
	log      *slog.Logger
	progress *command.Progress

	bench  *bench.Workbench
	result benchResult
}

// run measures everything. What it has made is dropped when it returns.
func (r *benchRun) run(ctx context.Context) (_ *benchResult, err error) {
	if err := warnLeftovers(ctx, r.log, r.place.servers); err != nil {
		return nil, err
	}
	r.bench, err = bench.NewWorkbench(ctx, r.place.servers, bench.Config{
		Partitions: int32(r.options.partitions), ReplicationFactor: int16(r.place.replicationFactor), Keep: r.options.keep,
		Progress: func(p bench.Progress) { r.progress.Show(ctx, p.Doing, p.Done, p.Total) },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, r.bench.Close(ctx))
		for _, l := range r.bench.Kept() {
			r.log.InfoContext(ctx, "kept", slog.String("object", l.Object), slog.String("drop", l.Drop))
		}
	}()
	r.describe()
	for _, measure := range []func(context.Context) error{r.drain, r.startUp, r.latency} {
		if err := measure(ctx); err != nil {
			return nil, err
		}
	}
	return &r.result, nil
}

// drain measures both contenders over the same rows, in turn: what disturbs the machine for a while
// disturbs both.
func (r *benchRun) drain(ctx context.Context) (err error) {
	r.progress.Phase = "drain"
	backlog, err := r.bench.Write(ctx, r.options.load)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backlog.Close(ctx)) }()
	floor, missing := r.floor()
	var ours, theirs []bench.DrainResult
	for n := range r.options.runs {
		r.progress.Phase = fmt.Sprintf("drain, run %d of %d", n+1, r.options.runs)
		one, err := backlog.Drain(ctx, r.place.relay)
		if err != nil {
			return err
		}
		r.result.check(one.Rows, *one.Verdict)
		ours = append(ours, one)
		if missing != "" {
			continue
		}
		other, err := backlog.Drain(ctx, floor)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil: // it is only there to compare with
			missing = err.Error()
		default:
			theirs = append(theirs, other)
		}
	}
	r.result.drained(ours, theirs, missing)
	return nil
}

// floor returns pg_recvlogical, or why it cannot be had.
func (r *benchRun) floor() (_ bench.PgRecvlogical, missing string) {
	floor := r.place.floor
	if floor.Path = r.options.recvlogical; floor.Path == "" {
		floor.Path = bench.FindPgRecvlogical()
	}
	if floor.Path == "" {
		return floor, "pg_recvlogical was not found; --pg-recvlogical says where it is"
	}
	if _, err := exec.LookPath(floor.Path); err != nil {
		return floor, err.Error()
	}
	return floor, ""
}

func (r *benchRun) startUp(ctx context.Context) error {
	r.progress.Phase = "start-up"
	var seconds []float64
	for range r.options.runs {
		took, err := r.bench.StartUp(ctx, r.place.relay)
		if err != nil {
			return err
		}
		seconds = append(seconds, took.Seconds())
	}
	r.result.StartUpSeconds = rounded(bench.Median(seconds...), 3)
	return nil
}

func (r *benchRun) latency(ctx context.Context) error {
	for _, rate := range r.options.rates {
		r.progress.Phase = fmt.Sprintf("latency at %d/s", rate)
		one, err := r.bench.Latency(ctx, r.place.relay, bench.Flow{
			Rate: rate, Duration: r.options.duration, PayloadBytes: r.options.load.PayloadBytes, Keys: r.options.load.Keys,
		})
		if err != nil {
			return err
		}
		r.result.check(one.Measured, one.Verdict)
		r.result.Latency = append(r.result.Latency, newLatencyFigures(one))
	}
	return nil
}

// describe says what is measured, where.
func (r *benchRun) describe() {
	l := r.options.load
	r.result.Version, r.result.Postgres = command.Version().Module, r.bench.PostgresVersion()
	r.result.Load = loadFigures{
		Rows: l.Rows, PayloadBytes: l.PayloadBytes, PerTransaction: l.PerTransaction, Keys: l.Keys,
		Partitions: r.options.partitions, Compression: r.place.compression, Runs: r.options.runs,
	}
	r.result.Source, r.result.Brokers = r.place.source, r.place.brokers
	r.result.Latency = []latencyFigures{} // in JSON, too
}
