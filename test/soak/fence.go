package soak

import "github.com/outbox-cdc/outbox-cdc/internal/delivery"

// A fence judges that brokers refuse older writers: in a partition, nothing of an older writer comes
// behind the first record of a newer one. Of two producers with one id the newer one has the higher
// epoch. A relay that takes another id is newer than the one before, which must not come back.
//
// That is what keeps two relays of one slot apart, whatever their clocks say. Records of a producer
// without an identity are not judged.
type fence struct {
	partitions map[place]*writings
	found      violations
}

type place struct {
	topic     string
	partition int32
}

// Writings are whose records are in a partition.
type writings struct {
	newest Producer
	past   map[int64]bool // the ids that were newest before
}

// judge checks the writer of the partition's next record.
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
