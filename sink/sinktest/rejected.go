package sinktest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendRejected sends records of two keys, then a record of key 0 that the broker rejects, and then more
// records of both keys until the Writer returns an error. It returns the Seq of the rejected record.
func (r *rig) sendRejected(destination string) (rejected uint64) {
	r.Helper()
	r.send(destination, 20, 2)
	bad := r.record(destination, "0")
	r.subject.Reject(bad)
	if err := r.trySend(Context(r.T), bad); err != nil {
		r.Fatalf("Send: %v", err)
	}
	rejected = bad.Seq
	for i := range 20 {
		if r.trySend(Context(r.T), r.record(destination, fmt.Sprint(i%2))) != nil {
			break
		}
	}
	r.Writer.Flush()
	return rejected
}

// gather makes the next records wait for the response to an earlier request, until heal is called.
func (r *rig) gather(destination string) (heal func()) {
	r.Helper()
	r.send(destination, 1, 1)
	r.awaitAll()
	hold := r.subject.Hold()
	met, heal := hold.Begin(r.T)
	r.send(destination, 1, 1)
	r.Writer.Flush()
	r.meet(hold, met)
	return heal
}

func testRejected(t *testing.T, s Subject) {
	for _, gathered := range []bool{false, true} {
		destination := s.Destination(t)
		r := start(t, s, window, sink.WriterConfig{})
		heal := func() {}
		if gathered {
			heal = r.gather(destination)
		}
		rejected := r.sendRejected(destination)
		heal()
		err := r.Wait()
		e, ok := errors.AsType[*sink.RecordError](err)
		if !ok || e.Seq != rejected || e.Topic != destination || !bytes.Contains(e.Key, []byte(secret)) || e.Reason == nil {
			t.Fatalf("Run: %v, want a RecordError of record %d", err, rejected)
		}
		if failed := r.Failed(); len(failed) != 1 || !errors.Is(failed[rejected], e) {
			t.Errorf("failed are %v", failed)
		}
		if err := r.trySend(Context(t), r.record(destination, "1")); !errors.Is(err, e) {
			t.Errorf("Send: %v", err)
		}
		times := r.stored(destination)
		for _, rec := range r.sent {
			switch {
			case rec.Seq < rejected && (times[rec.Seq] != 1 || !r.IsAcked(rec.Seq)):
				t.Errorf("record %d, before the rejected one, is stored %d times and acknowledged: %v", rec.Seq, times[rec.Seq], r.IsAcked(rec.Seq))
			case rec.Seq >= rejected && bytes.HasSuffix(rec.Key, []byte(" 0")) && times[rec.Seq] > 0:
				t.Errorf("record %d, of the key of record %d, is stored", rec.Seq, rejected)
			}
		}
		r.wantAcked(t, times)
	}
}

// to returns a Substitute that sends rejected records to the destination dead. Records that the broker
// rejects there have no substitute.
func to(dead string) sink.Substitute {
	return func(rec *sink.Record, rejected *sink.RecordError) *sink.Record {
		if rec.Topic == dead {
			return nil
		}
		rec.Seq, rec.Topic, rec.Partition = 0, dead, sink.AnyPartition
		rec.Headers = append(rec.Headers, sink.Header{Key: "why", Value: []byte(rejected.Error())})
		rec.Value = rec.Value[:len(secret)]
		return rec
	}
}

func testSubstitute(t *testing.T, s Subject) {
	destination, dead := s.Destination(t), s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{Substitute: to(dead)})
	var rejected []uint64
	for range 3 {
		rejected = append(rejected, r.sendRejected(destination))
	}
	r.drain()
	times := r.stored(destination)
	if want := len(r.sent) - len(rejected); len(times) != want {
		t.Errorf("%d records are stored, want %d", len(times), want)
	}
	substitutes := s.Read(t, dead)
	if len(substitutes) != len(rejected) {
		t.Fatalf("%d substitutes, want %d", len(substitutes), len(rejected))
	}
	for i, substitute := range substitutes {
		was := r.sent[rejected[i]-1]
		if limitsOf(s).Unordered {
			was = *r.sentAs(&substitute.Record)
		}
		if times[was.Seq] > 0 || string(substitute.Value) != secret || !bytes.Equal(substitute.Key, was.Key) || len(substitute.Headers) != len(was.Headers)+1 {
			t.Errorf("the substitute of record %d, which is stored %d times, has %d headers", was.Seq, times[was.Seq], len(substitute.Headers))
		}
	}
}

func testRejectedSubstitute(t *testing.T, s Subject) {
	destination, dead := s.Destination(t), s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{Substitute: func(rec *sink.Record, _ *sink.RecordError) *sink.Record {
		if rec.Topic == dead {
			return nil
		}
		rec.Topic = dead
		return rec
	}})
	rejected := r.sendRejected(destination)
	err := r.Wait()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != rejected || e.Topic != dead {
		t.Errorf("Run: %v, want a RecordError of record %d for the other destination", err, rejected)
	}
	if substitutes := s.Read(t, dead); len(substitutes) > 0 {
		t.Errorf("%d substitutes are stored", len(substitutes))
	}
}
