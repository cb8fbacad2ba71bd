package jetstream

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// A reader whose requests fail for a while reads every message once.
func TestReadAcrossFaults(t *testing.T) {
	t.Parallel()
	s := newSubject(natstest.Start(t))
	for _, fault := range []sinktest.Fault{s.faults.Drop(), s.faults.Lose()} {
		t.Run(fault.Name, func(t *testing.T) {
			stream := s.Destination(t)
			r := newRig(t, config(s.Server), sink.WriterConfig{})
			r.sendRows(stream, 200, 7)
			r.Drain(200)
			ctx := sinktest.Context(t)
			deadLetters, err := config(s.Server).OpenDeadLetters(ctx, stream, r.Journal.Logger())
			if err != nil {
				t.Fatal(err)
			}
			defer deadLetters.Close()
			ranges, err := deadLetters.OffsetRanges(ctx)
			if err != nil {
				t.Fatal(err)
			}
			met, heal := fault.Begin(t)
			go func() {
				select {
				case <-met:
				case <-ctx.Done():
				}
				heal()
			}()
			n := 0
			if err := deadLetters.Read(ctx, ranges[0], func(*sink.StoredRecord) error { n++; return nil }); err != nil || n != 200 {
				t.Errorf("read %d of 200 messages: %v", n, err)
			}
		})
	}
}
