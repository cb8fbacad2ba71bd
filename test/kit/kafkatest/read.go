package kafkatest

import (
	"cmp"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadAll returns every record that is in the topics at the call, sorted by topic,
// partition and offset. The topics must exist.
func (c *Cluster) ReadAll(tb testing.TB, topics ...string) []*kgo.Record {
	tb.Helper()
	return c.readAll(tb, dataOnly, topics)
}

// ReadCommitted is like ReadAll for a consumer that reads only committed records: it returns none of an aborted
// transaction, and none after the beginning of an open one.
func (c *Cluster) ReadCommitted(tb testing.TB, topics ...string) []*kgo.Record {
	tb.Helper()
	everything := func(f func(*kgo.Record)) func(*kgo.Record) { return f }
	var visible []*kgo.Record
	for _, records := range byPartition(c.readAll(tb, everything, topics)) {
		visible = append(visible, Committed(records)...)
	}
	return visible
}

// ReadsToEnd reports whether a consumer that reads only committed records can read partition 0 of a topic to its end, and
// the partition has records. Otherwise a transaction is open there.
func ReadsToEnd(tb testing.TB, admin *kadm.Client, topic string) bool {
	tb.Helper()
	committed, err := admin.ListCommittedOffsets(tb.Context(), topic)
	if err != nil {
		tb.Fatalf("list the last stable offset of %s: %v", topic, err)
	}
	all, err := admin.ListEndOffsets(tb.Context(), topic)
	if err != nil {
		tb.Fatalf("list the end of %s: %v", topic, err)
	}
	end := all[topic][0].Offset
	return end > 0 && committed[topic][0].Offset == end
}

// byPartition splits sorted records.
func byPartition(records []*kgo.Record) (parts [][]*kgo.Record) {
	for i, r := range records {
		if i == 0 || r.Topic != records[i-1].Topic || r.Partition != records[i-1].Partition {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], r)
	}
	return parts
}

// Committed returns those records of a partition, which include its control records, that a consumer returns who reads
// only committed records.
func Committed(partition []*kgo.Record) []*kgo.Record {
	const commit = 1 // the key of a control record is: version 2 | type 2
	open := make(map[int64][]*kgo.Record)
	outcome := make(map[*kgo.Record]bool) // committed or not
	for _, r := range partition {
		switch {
		case r.Attrs.IsControl():
			for _, of := range open[r.ProducerID] {
				outcome[of] = r.Key[3] == commit
			}
			delete(open, r.ProducerID)
		case r.Attrs.IsTransactional():
			open[r.ProducerID] = append(open[r.ProducerID], r)
		default:
			outcome[r] = true
		}
	}
	var visible []*kgo.Record
	for _, r := range partition {
		committed, ended := outcome[r]
		switch {
		case r.Attrs.IsControl():
		case !ended:
			return visible
		case committed:
			visible = append(visible, r)
		}
	}
	return visible
}

func (c *Cluster) readAll(tb testing.TB, filter func(func(*kgo.Record)) func(*kgo.Record), topics []string) []*kgo.Record {
	tb.Helper()
	var all records
	collector := c.collect(tb, filter(all.add), topics)
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
	collector := c.collect(tb, dataOnly(all.add), topics)
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
