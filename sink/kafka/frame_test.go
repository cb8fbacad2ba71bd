package kafka

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// randomRecord returns a record in which each field may be null or empty.
func randomRecord(rng *rand.Rand, seq uint64) sink.Record {
	bytes := func(n int) []byte {
		switch rng.IntN(8) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, rng.IntN(n))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	r := sink.Record{
		Seq: seq, Partition: sink.AnyPartition, Key: bytes(40), Value: bytes(300),
		Timestamp: time.UnixMilli(1_700_000_000_000 + rng.Int64N(5000) - 2500),
	}
	for range rng.IntN(4) {
		r.Headers = append(r.Headers, sink.Header{Key: fmt.Sprint("h", rng.IntN(3)), Value: bytes(20)})
	}
	return r
}

// TestFilterKeepsAnEarlierRecordBehindALaterOne: a substitute has the sequence of its record and is buffered behind later ones.
func TestFilterKeepsAnEarlierRecordBehindALaterOne(t *testing.T) {
	pool := &chunkPool{limit: 1 << 20}
	var fs frames
	for _, seq := range []uint64{1, 4, 3, 5} {
		r := sink.Record{Seq: seq, Value: []byte("value")}
		s := shapeOf(&r)
		putFrame(fs.reserve(pool, &s), &r, 0)
	}
	removed := fs.filter(pool, func(f *frame) bool { return f.seq <= 3 })
	if seqs := fs.appendSeqs(nil); removed != 2 || !slices.Equal(seqs, []uint64{1, 3}) {
		t.Errorf("removed %d, kept %v", removed, seqs)
	}
}

func TestFramesHoldRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pool := &chunkPool{limit: 1 << 20}
	var fs frames
	var want []sink.Record
	for i := range 3000 {
		r := randomRecord(rng, uint64(i+1))
		s := shapeOf(&r)
		putFrame(fs.reserve(pool, &s), &r, millis(r.Timestamp))
		want = append(want, r)
	}
	var got []sink.Record
	for f := range fs.all {
		if s := f.shape(); s != shapeOf(&want[len(got)]) {
			t.Fatalf("shape of record %d is %+v, was %+v", len(got), s, shapeOf(&want[len(got)]))
		}
		got = append(got, f.record())
	}
	if !reflect.DeepEqual(want, got) { // formatting the difference is expensive
		t.Fatalf("records differ (-put +read):\n%s", cmp.Diff(want, got))
	}
	if fs.records != len(want) || fs.capacity != pool.inUse() {
		t.Errorf("%d records in %d bytes, want %d in %d", fs.records, fs.capacity, len(want), pool.inUse())
	}

	fs.filter(pool, func(f *frame) bool { return f.seq <= 1000 })
	if fs.records != 1000 || fs.capacity != pool.inUse() {
		t.Errorf("after truncation: %d records in %d bytes, want 1000 in %d", fs.records, fs.capacity, pool.inUse())
	}
	if seqs := fs.appendSeqs(nil); len(seqs) != 1000 || seqs[999] != 1000 {
		t.Errorf("after truncation: %d sequences, last %d", len(seqs), seqs[len(seqs)-1])
	}
	fs.release(pool)
	if pool.inUse() != 0 || fs.records != 0 || fs.capacity != 0 {
		t.Errorf("after release: %d bytes out, %+v", pool.inUse(), fs)
	}
}

func TestVarintLen(t *testing.T) {
	for _, tc := range []struct {
		x    int64
		want int
	}{
		{0, 1},
		{-1, 1},
		{63, 1},
		{-64, 1},
		{64, 2},
		{-65, 2},
		{8191, 2},
		{8192, 3},
		{1 << 20, 4},
		{math.MaxInt32, 5},
		{math.MaxInt64, 10},
		{math.MinInt64, 10},
	} {
		if got := varintLen(tc.x); got != tc.want {
			t.Errorf("varintLen(%d) = %d, want %d", tc.x, got, tc.want)
		}
	}
}

func TestChunkPoolKeepsItsLimit(t *testing.T) {
	const limit = 1 << 20
	pool := &chunkPool{limit: limit}
	rng := rand.New(rand.NewPCG(5, 6))
	var out [][]byte
	for range 20_000 {
		if n := 1 << rng.IntN(17); rng.IntN(2) == 0 && pool.inUse()+2*n <= limit {
			c := pool.get(n)
			if len(c) != 0 || cap(c) < n {
				t.Fatalf("get(%d) has length %d, capacity %d", n, len(c), cap(c))
			}
			out = append(out, c)
		} else if len(out) > 0 {
			i := rng.IntN(len(out))
			pool.put(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
		}
		sum := 0
		for _, c := range out {
			sum += cap(c)
		}
		if pool.inUse() != sum || pool.inUse()+pool.idle > limit {
			t.Fatalf("%d bytes out (counted %d), %d idle, limit %d", sum, pool.inUse(), pool.idle, limit)
		}
	}
}

func TestSequencesWrap(t *testing.T) {
	for _, tc := range []struct {
		seq  int32
		n    int
		want int32
	}{
		{0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1}, {5, 8192, 8197},
	} {
		if got := addSequence(tc.seq, tc.n); got != tc.want {
			t.Errorf("nextSequence(%d, %d) = %d, want %d", tc.seq, tc.n, got, tc.want)
		}
	}
}

func TestBackoffStaysInItsBounds(t *testing.T) {
	for attempt, ms := range []int64{50, 100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000} {
		ceiling := time.Duration(ms) * time.Millisecond
		if lo, hi := backoff(attempt, 0), backoff(attempt, 1); lo != 0 || hi != ceiling {
			t.Errorf("backoff(%d) is within [%s, %s], want [0, %s]", attempt, lo, hi, ceiling)
		}
	}
	if got := backoff(1<<30, 1); got != backoffMax {
		t.Errorf("backoff after a billion attempts is %s", got)
	}
}
