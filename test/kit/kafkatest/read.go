package kafkatest

import (
	"cmp"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadAll returns every record that is in the topics at the call, sorted by topic,
// partition and offset. The topics must exist.
func (c *Cluster) ReadAll(tb testing.TB, topics ...string) []*kgo.Record {
	tb.Helper()
	var all records
	collector := c.collect(tb, all.add, topics)
	defer collector.Stop()
	if err := collector.CatchUp(tb.Context()); err != nil {
		tb.Fatalf("read %v: %v", topics, err)
	}
	return all.sorted()
}

// ReadN waits until it has read n records of the topics. It returns all records it
// has read, which may be more than n, sorted by topic, partition and offset.
func (c *Cluster) ReadN(tb testing.TB, n int, topics ...string) []*kgo.Record {
	tb.Helper()
	var all records
	collector := c.collect(tb, all.add, topics)
	defer collector.Stop()
	if err := collector.waitFor(tb.Context(), func() bool { return all.len() >= n }); err != nil {
		tb.Fatalf("read %d records of %v: got %d: %v", n, topics, all.len(), err)
	}
	collector.Stop()
	return all.sorted()
}

type records struct {
	mu  sync.Mutex
	all []*kgo.Record
}

func (r *records) add(rec *kgo.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec)
}

func (r *records) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *records) sorted() []*kgo.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.all, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return r.all
}
