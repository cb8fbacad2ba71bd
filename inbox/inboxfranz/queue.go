package inboxfranz

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A queue holds the fetched records of a partition until its worker has handled them. It pauses the
// partition while it is full. A partition whose queue is not full stays in every fetch: one that was
// left out would wait until the fetch in flight returns, which takes up to kgo.FetchMaxWait if the
// other partitions have no records.
type queue struct {
	partition map[string][]int32 // as the client's methods take it
	ready     chan struct{}      // of capacity 1: there may be a record

	mu      sync.Mutex
	records []*kgo.Record
	bytes   int
	paused  bool
}

const (
	maxQueued      = 1 << 20 // bytes
	recordOverhead = 300     // bytes in memory besides key, value and headers, about
)

func newQueue(at place) *queue {
	return &queue{partition: map[string][]int32{at.topic: {at.partition}}, ready: make(chan struct{}, 1)}
}

// add appends records, without waiting.
func (q *queue) add(client *kgo.Client, records []*kgo.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records = append(q.records, records...)
	for _, r := range records {
		q.bytes += size(r)
	}
	if q.bytes >= maxQueued && !q.paused {
		q.paused = true
		client.PauseFetchPartitions(q.partition)
	}
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// next waits for the first record and returns it, or nil if ctx is done. The record stays in the
// queue until remove.
func (q *queue) next(ctx context.Context) *kgo.Record {
	for {
		if ctx.Err() != nil {
			return nil
		}
		if r := q.first(); r != nil {
			return r
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
}

func (q *queue) first() *kgo.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.records) == 0 {
		return nil
	}
	return q.records[0]
}

// remove removes the first record.
func (q *queue) remove(client *kgo.Client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= size(q.records[0])
	q.records[0] = nil
	q.records = q.records[1:]
	if q.bytes < maxQueued && q.paused {
		q.paused = false
		client.ResumeFetchPartitions(q.partition)
	}
}

func size(r *kgo.Record) int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
