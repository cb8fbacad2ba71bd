package sinktest

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A follower sends a rejected record and every later record of its key to the destination dead. It also
// diverts the records of a key after the one that it was told about.
type follower struct {
	dead string

	mu    sync.Mutex
	first map[string]uint64 // by key: every record from this Seq on is diverted
}

func (f *follower) substitute(rec *sink.Record, _ *sink.RecordError) *sink.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rec.Topic == f.dead {
		return nil
	}
	if first, ok := f.first[string(rec.Key)]; !ok || rec.Seq < first {
		f.first[string(rec.Key)] = rec.Seq
	}
	return f.move(rec)
}

func (f *follower) divert(rec *sink.Record) *sink.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first, ok := f.first[string(rec.Key)]; !ok || rec.Seq < first || rec.Topic == f.dead {
		return nil
	}
	return f.move(rec)
}

// move sends rec to the destination dead, without the value, which may be too large there too.
func (f *follower) move(rec *sink.Record) *sink.Record {
	rec.Topic, rec.Partition, rec.Value = f.dead, sink.AnyPartition, rec.Value[:len(secret)]
	return rec
}

// testDiverted: every record behind a rejected one of its key is diverted, whether it was sent before or after the
// rejection, and all of them are in order at the other destination. Other keys are not affected.
func testDiverted(t *testing.T, s Subject) {
	for _, gathered := range []bool{false, true} {
		destination, dead := s.Destination(t), s.Destination(t)
		f := &follower{dead: dead, first: make(map[string]uint64)}
		r := start(t, s, window, sink.WriterConfig{Substitute: f.substitute, Divert: f.divert})
		heal := func() {}
		if gathered {
			heal = r.gather(destination)
		}
		rejected := r.sendRejected(destination)
		heal()
		r.sendRejected(destination) // as a record of a key that is diverted already
		r.send(destination, 100, 3)
		r.drain()

		var want []uint64
		times := r.stored(destination)
		for i := range r.sent {
			rec := &r.sent[i]
			behind := rec.Seq >= rejected && bytes.HasSuffix(rec.Key, []byte(" 0"))
			if behind {
				want = append(want, rec.Seq)
			}
			if n := times[rec.Seq]; behind && n > 0 || !behind && n != 1 {
				t.Errorf("record %d is stored %d times; behind the rejected record %d: %v", rec.Seq, n, rejected, behind)
			}
		}
		var got []uint64
		for _, rec := range s.Read(t, dead) {
			got = append(got, r.sentAs(&rec.Record).Seq)
		}
		if limitsOf(s).Unordered {
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("diverted are %v, want %v", got, want)
		}
	}
}
