package soak

import "github.com/outbox-cdc/outbox-cdc/internal/delivery"

// A fence checks that brokers reject older writers. In a partition, no record of an older writer follows
// the first record of a newer one. Of two producers with one id, the newer one has the higher epoch. A
// producer with another id is newer than the previous one, which must not write again.
//
// This rule separates two relays of one slot, whatever their clocks are. The fence ignores records of a
// producer without an identity.
type fence struct {
	partitions map[place]*writings
	found      violations
}

type place struct {
	topic     string
	partition int32
}

// writings are the producers that have written to a partition.
type writings struct {
	newest Producer
	past   map[int64]bool // ids of the producers that were the newest before
}

// judge checks the producer of the partition's next record.
func (f *fence) judge(r *Record) {
	if r.Producer.ID < 0 {
		return
	}
	at := place{r.Topic, r.Partition}
	w := f.partitions[at]
	if w == nil {
		w = &writings{newest: r.Producer, past: make(map[int64]bool)}
		f.partitions[at] = w
	}
	switch {
	case w.past[r.Producer.ID], r.Producer.ID == w.newest.ID && r.Producer.Epoch < w.newest.Epoch:
		f.found.add(Violation{At: r.Seen, Violation: delivery.Violation{
			Kind: OldWriter, Record: r.Coordinates, Aggregate: string(r.Key),
			Detail: r.Producer.String() + " has written it, behind " + w.newest.String(),
		}})
	case r.Producer.ID != w.newest.ID:
		w.past[w.newest.ID] = true
		w.newest = r.Producer
	default:
		w.newest = r.Producer
	}
}
