package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

// flushTimeout bounds how much longer a stop takes because of spans, within drain_timeout.
const flushTimeout = 5 * time.Second

// traced runs the relay, and the exporter of its spans as long. What is left at the end is
// exported, if that does not take longer than flushTimeout, nor the whole stop longer than drain.
func traced(ctx context.Context, tracer *tracing.Tracer, drain time.Duration, log *slog.Logger, run func() error) error {
	if tracer == nil {
		return run()
	}
	flushing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(drain):
			giveUp()
		case <-flushing.Done():
		}
	})()
	exporting, stop := context.WithCancel(flushing)
	var exporter sync.WaitGroup
	exporter.Go(func() { tracer.Run(exporting) })
	err := run()
	stop()
	exporter.Wait()

	last, cancel := context.WithTimeout(flushing, flushTimeout)
	defer cancel()
	if left := tracer.Flush(last); left > 0 {
		log.WarnContext(ctx, "spans were not exported before the end", slog.Int("spans", left))
	}
	return err
}
