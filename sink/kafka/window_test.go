package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

func TestWindowBytes(t *testing.T) {
	for _, test := range []struct{ limit, partitions, want int }{
		{DefaultWindowBytes, 0, 4 << 20},
		{DefaultWindowBytes, 341, 4 << 20},
		{DefaultWindowBytes, 1200, 15 << 20}, // 12 KiB each, in whole MiB
		{DefaultWindowBytes, 12_000, DefaultWindowBytes},
		{1 << 20, 0, 1 << 20},
		{1 << 20, 1200, 1 << 20},
		{16 << 20, 12, 4 << 20},
	} {
		cfg := Config{WindowBytes: test.limit}
		if got := cfg.windowBytes(test.partitions); got != test.want {
			t.Errorf("a limit of %d and %d partitions: %d, want %d", test.limit, test.partitions, got, test.want)
		}
	}
}

// TestSmallBatches: check and Stat say when the window is too small for the partitions, and which size is enough.
func TestSmallBatches(t *testing.T) {
	for partitions, want := range map[int]string{0: "", 1000: "", 1100: "set sink.kafka.window.bytes to 13631488;"} {
		found, fix := Config{WindowBytes: 4 << 20}.smallBatches(partitions)
		if (found == "") != (want == "") || !strings.HasPrefix(fix, want) || want == "" && fix != "" {
			t.Errorf("%d partitions: %s: %s", partitions, found, fix)
		}
	}
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{WindowBytes: 2 << 20})
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		r.AwaitAcked(1)
		release := holdProduce(l.cluster)
		if advice := r.client.Stat().WindowAdvice; advice != "" {
			l.Errorf("the window is empty: %s", advice)
		}
		r.fillWindow(600)
		if advice := r.client.Stat().WindowAdvice; !strings.Contains(advice, "600 partitions") || !strings.Contains(advice, "set sink.kafka.window.bytes to 8388608") {
			l.Errorf("advice: %q", advice)
		}
		release()
		r.drain()
		if advice := r.client.Stat().WindowAdvice; advice != "" {
			l.Errorf("every record is acknowledged: %s", advice)
		}
	}, kfake.SeedTopics(600, "t"))
}

// TestWindowFollowsThePartitions: a full window grows if many partitions have records, up to its limit, and shrinks
// when it was not full for a while. The pool releases its memory, and MemoryChanged is called with each size, and with what the
// partitions need without records: 2 KiB for each, in whole MiB.
func TestWindowFollowsThePartitions(t *testing.T) {
	for _, test := range []struct {
		name       string
		cfg        Config
		partitions int32
		largest    int   // MiB
		reported   []int // MiB
	}{
		{"few", Config{}, 100, 4, []int{4}},
		{"many", Config{}, 800, 10, []int{4, 5, 11, 5}},
		{"more than the limit allows", Config{WindowBytes: 6 << 20}, 800, 6, []int{4, 5, 7, 5}},
		{"a limit below the smallest window", Config{WindowBytes: 2 << 20}, 800, 2, []int{2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				var mu sync.Mutex
				var sizes []int
				r := l.rigWith(test.cfg, sink.WriterConfig{MemoryChanged: func(bytes int) {
					mu.Lock()
					defer mu.Unlock()
					sizes = append(sizes, bytes>>20)
				}})
				r.send(recordFor("t", 0, "x"))
				r.producer.Flush()
				r.AwaitAcked(1)
				release := holdProduce(l.cluster)
				r.fillWindow(test.partitions)
				if got := r.client.Stat().WindowBytes >> 20; got != test.largest {
					l.Errorf("the full window has %d MiB, want %d", got, test.largest)
				}
				if got := r.client.pool.inUse(); got < test.largest<<20*9/10 {
					l.Errorf("%d bytes fill a window of %d MiB", got, test.largest)
				}
				release()
				r.producer.Flush()
				r.AwaitAcked(int(r.seq))
				bubble.Sleep(2 * shrinkAfter)
				synctest.Wait()
				if smallest := test.reported[0] << 20; r.client.pool.idle > smallest+smallest/16 {
					l.Errorf("the pool keeps %d bytes", r.client.pool.idle)
				}
				r.drain()
				if !slices.Equal(sizes, test.reported) {
					l.Errorf("MemoryChanged was called with %d MiB, want %d", sizes, test.reported)
				}
			}, kfake.SeedTopics(test.partitions, "t"))
		})
	}
}

// fillWindow sends records to the partitions of t in turn until Send blocks.
func (r *rig) fillWindow(partitions int32) {
	r.tb.Helper()
	rec := sink.Record{Topic: "t", Value: make([]byte, 400)}
	for {
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		rec.Seq, rec.Partition = r.seq+1, int32(r.seq)%partitions
		err := r.producer.Send(ctx, &rec)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			r.tb.Fatal(err)
		}
		r.seq++
	}
}
