package sinktest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// stored reads a destination and returns how often it contains each record, by Seq. It fails the test if
// a record was not sent, or differs from the record that was sent. It also fails if the records of a key,
// without duplicates, are out of order.
func (r *rig) stored(destination string) map[uint64]int {
	r.Helper()
	times := make(map[uint64]int)
	last := make(map[string]uint64)
	for _, got := range r.subject.Read(r.T, destination) {
		want := r.sentAs(&got.Record)
		if want == nil {
			r.Fatalf("record %d of partition %d was not sent", got.Offset, got.Partition)
		}
		if diff := differs(want, &got.Record); diff != "" {
			r.Errorf("record %d has another %s than it was sent with", want.Seq, diff)
		}
		times[want.Seq]++
		if times[want.Seq] > 1 {
			continue
		}
		key := string(want.Key)
		if want.Seq < last[key] {
			r.Errorf("record %d appears behind record %d of the same key", want.Seq, last[key])
		}
		last[key] = max(last[key], want.Seq)
	}
	return times
}

// sentAs returns the sent record with the id of got, or nil if there is none.
func (r *rig) sentAs(got *sink.Record) *sink.Record {
	if len(got.Headers) == 0 {
		return nil
	}
	for i := range r.sent {
		if bytes.Equal(r.sent[i].Headers[0].Value, got.Headers[0].Value) {
			return &r.sent[i]
		}
	}
	return nil
}

// differs returns the name of a field in which two records differ, or the empty string if they are equal.
func differs(a, b *sink.Record) string {
	same := func(a, b sink.Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	}
	switch {
	case !bytes.Equal(a.Key, b.Key) || (a.Key == nil) != (b.Key == nil):
		return "key"
	case !bytes.Equal(a.Value, b.Value) || (a.Value == nil) != (b.Value == nil):
		return "value"
	case !slices.EqualFunc(a.Headers, b.Headers, same):
		return "header"
	case !a.Timestamp.Equal(b.Timestamp):
		return "timestamp"
	}
	return ""
}

// wantAll checks that a destination contains every record that was sent there. If once is true, it allows
// no duplicates.
func (r *rig) wantAll(destination string, once bool) {
	r.Helper()
	times := r.stored(destination)
	for i := range r.sent {
		rec := &r.sent[i]
		if rec.Topic != destination {
			continue
		}
		if n := times[rec.Seq]; n == 0 || once && n > 1 {
			r.Errorf("record %d is stored %d times", rec.Seq, n)
		}
	}
}

// wantAcked checks that every acknowledged record is stored.
func (r *rig) wantAcked(t *testing.T, times map[uint64]int) {
	t.Helper()
	for i := range r.sent {
		if seq := r.sent[i].Seq; r.IsAcked(seq) && times[seq] == 0 {
			t.Errorf("record %d was acknowledged and is not stored", seq)
		}
	}
}
