package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

// flushTimeout bounds the time that a stop waits for spans, within drain_timeout.
const flushTimeout = 5 * time.Second

// traced runs the relay and the exporter of its spans. After the relay has stopped, it exports the remaining spans
// within flushTimeout, and within drain of the stop's start.
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
