package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

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

// A range begins at 0 as long as no message was removed: then a record that is not there was never stored, or its stream was lost.
func TestRangeOfAWholeStream(t *testing.T) {
	for name, tc := range map[string]struct {
		state jetstream.StreamState
		want  sink.OffsetRange
	}{
		"empty":          {jetstream.StreamState{}, sink.OffsetRange{End: 1}},
		"whole":          {jetstream.StreamState{FirstSeq: 1, LastSeq: 5}, sink.OffsetRange{End: 6}},
		"beginning gone": {jetstream.StreamState{FirstSeq: 3, LastSeq: 5}, sink.OffsetRange{Begin: 3, End: 6}},
		"all gone":       {jetstream.StreamState{FirstSeq: 6, LastSeq: 5}, sink.OffsetRange{Begin: 6, End: 6}},
		"a gap":          {jetstream.StreamState{FirstSeq: 1, LastSeq: 5, NumDeleted: 1}, sink.OffsetRange{Begin: 1, End: 6}},
	} {
		if got := rangeOf(tc.state); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
