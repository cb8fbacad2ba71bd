package lane

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Rows may choose any number of destinations, for example one for each entity: what is kept of them is limited.
func TestManyDestinations(t *testing.T) {
	const n = 20_000
	onStage(t, Options{WindowBytes: 1 << 30}, sink.WriterConfig{}, func(s *stage) {
		s.send("other/a/x")
		for i := range n {
			s.send(fmt.Sprintf("entity%d/a/x", i))
		}
		for s.Acked() < n+1 {
			_, requests := s.published()
			ack(requests...)
			synctest.Wait()
		}
		topics := s.base.Stat().Topics
		if len(s.writer.destinations) > maxDestinations || len(topics) > maxDestinations+1 {
			s.Errorf("the Writer has %d destinations, Stat %d", len(s.writer.destinations), len(topics))
		}
		total := int64(0)
		for _, topic := range topics {
			total += topic.Records
		}
		if total != n+1 || topics["entity0"].Records != 1 || topics[sink.OtherTopics].Records != n+1-maxDestinations+1 || topics[sink.OtherTopics].Bytes < n {
			s.Errorf("%d records in total, %+v for the first, %+v for the others", total, topics["entity0"], topics[sink.OtherTopics])
		}
		s.Drain(n + 1)
	})
}

// A destination that was writable is remembered as such although the Writer and Stat have no place for it.
func TestGiveUpAfterManyDestinations(t *testing.T) {
	const n = 2 * maxDestinations
	cfg := sink.WriterConfig{Substitute: bury, GiveUp: func(m sink.Missing) bool {
		if m.Destination != "never" {
			t.Errorf("asked about %s", m.Destination)
		}
		return true
	}}
	onStage(t, Options{}, cfg, func(s *stage) {
		for i := range n {
			s.send(fmt.Sprintf("entity%d/a/x", i))
		}
		for s.Acked() < n {
			_, requests := s.published()
			ack(requests...)
			synctest.Wait()
		}
		last := fmt.Sprintf("entity%d/a/x", n-1)
		s.send("entity0/a/x", last, "never/a/x")
		for range 2 * missingAnswers {
			_, requests := s.published()
			for _, r := range requests {
				if r.Records[0].Topic == "dead" {
					ack(r)
				} else {
					r.Done(0, sink.ErrMissing)
				}
			}
			sleepABit()
		}
		if acked := s.Acked(); acked != n+1 {
			s.Errorf("%d records are acknowledged", acked)
		}
		_, waiting := s.published()
		ack(waiting...)
		s.Drain(n + 3)
	})
}

// What is known of writable destinations is limited too.
func TestManyWritable(t *testing.T) {
	s := NewBase(Options{}, slog.New(slog.DiscardHandler))
	for i := range 2 * maxWritable {
		s.written(fmt.Sprint("entity", i))
	}
	if len(s.writable) > maxWritable || s.counters("entity0") == nil || s.counters(fmt.Sprint("entity", 2*maxWritable-1)) == nil {
		t.Errorf("%d are known", len(s.writable))
	}
}
