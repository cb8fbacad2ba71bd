package sinktest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
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
	limits := limitsOf(r.subject)
	for _, got := range r.subject.Read(r.T, destination) {
		want := r.sentAs(&got.Record)
		if want == nil {
			r.Fatalf("record %d of partition %d was not sent", got.Offset, got.Partition)
		}
		if diff := differs(want, &got.Record, limits); diff != "" {
			r.Errorf("record %d has another %s than it was sent with", want.Seq, diff)
		}
		times[want.Seq]++
		if times[want.Seq] > 1 || limits.Unordered {
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
	at := slices.IndexFunc(got.Headers, func(h sink.Header) bool { return h.Key == "id" })
	if at < 0 {
		return nil
	}
	id := got.Headers[at].Value
	n, err := strconv.Atoi(string(id[bytes.LastIndexByte(id, ' ')+1:])) // see record
	if err != nil || n < 1 || n > len(r.sent) || !bytes.Equal(r.sent[n-1].Headers[0].Value, id) {
		return nil
	}
	return &r.sent[n-1]
}

// byName returns headers in the order of their names. Brokers need not keep the order of headers with different names.
func byName(headers []sink.Header) []sink.Header {
	return slices.SortedStableFunc(slices.Values(headers), func(a, b sink.Header) int { return strings.Compare(a.Key, b.Key) })
}

// differs returns the name of a field in which two records differ, or the empty string if they are equal.
func differs(a, b *sink.Record, limits Limits) string {
	same := func(a, b []byte) bool {
		return bytes.Equal(a, b) && ((a == nil) == (b == nil) || limits.NoNull)
	}
	switch {
	case !same(a.Key, b.Key):
		return "key"
	case !same(a.Value, b.Value):
		return "value"
	case !slices.EqualFunc(byName(a.Headers), byName(b.Headers), func(a, b sink.Header) bool { return a.Key == b.Key && same(a.Value, b.Value) }):
		return "header"
	case !a.Timestamp.Equal(b.Timestamp) && !limits.NoTimestamp:
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
