package kafka

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A namer computes the names of records, from which a Writer recognises rows that an earlier one has stored: the hash of the
// headers that name the row, and of key, value and timestamp, because nothing makes these headers unique. Names are valid in this
// process only.
type namer struct {
	seed    maphash.Seed
	headers []string
}

// noName is the name of a record without any of the headers.
const noName = 0

// appendTime stands for the timestamps of a topic in which the broker sets them (message.timestamp.type=LogAppendTime).
const appendTime = -1

// A naming computes one name.
type naming struct {
	maphash.Hash

	of    *namer
	named bool
}

func (n *namer) begin(key, value []byte, ms int64) *naming {
	h := &naming{of: n}
	h.SetSeed(n.seed)
	h.field(key)
	h.field(value)
	maphash.WriteComparable(&h.Hash, ms)
	return h
}

func (h *naming) field(b []byte) {
	maphash.WriteComparable(&h.Hash, length(b))
	_, _ = h.Write(b)
}

func (h *naming) header(key, value []byte) {
	if slices.Contains(h.of.headers, string(key)) {
		h.named = true
		h.field(key)
		h.field(value)
	}
}

func (h *naming) name() uint64 {
	if !h.named {
		return noName
	}
	return h.Sum64()
}

func (n *namer) ofFrame(f *frame, ms int64) uint64 {
	h := n.begin(f.key, f.value, ms)
	for rest := f.headerBytes; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		h.header(key, value)
	}
	return h.name()
}

func (n *namer) ofRecord(b *sarama.RecordBatch, r *sarama.Record) uint64 {
	ms := int64(appendTime)
	if !b.LogAppendTime {
		ms = b.FirstTimestamp.Add(r.TimestampDelta).UnixMilli()
	}
	h := n.begin(r.Key, r.Value, ms)
	for _, header := range r.Headers {
		h.header(header.Key, header.Value)
	}
	return h.name()
}

// tailNames are the names of the records that earlier owners have stored at the end of a partition. It needs nine bytes for
// each.
type tailNames struct {
	names []uint64 // sorted when all were added
	taken []bool   // in the same order
}

// sort makes take usable.
func (t *tailNames) sort() {
	slices.Sort(t.names)
	t.taken = make([]bool, len(t.names))
}

// take takes a name, and reports whether it was there. If several records have one name, it can be taken as often: those that
// were sent first are stored.
func (t *tailNames) take(name uint64) bool {
	if name == noName {
		return false
	}
	i, _ := slices.BinarySearch(t.names, name)
	for ; i < len(t.names) && t.names[i] == name; i++ {
		if !t.taken[i] {
			t.taken[i] = true
			return true
		}
	}
	return false
}

const (
	// tailBytes limits how far back the end of a partition is read.
	tailBytes = 64 << 20

	// tailAge is how much older than the oldest waiting record the last batch that is read must be. The timestamps of
	// records are commit times of transactions, which are not exactly in commit order.
	tailAge = time.Second

	// tailWait is how long a broker waits for records before it answers that there are none.
	tailWait = 100 * time.Millisecond

	// Each step back has more offsets than the one before, up to maxTailStep. The first has one batch, which is often enough.
	tailStepGrowth = 16
	maxTailStep    = 1 << 14
)

// A tailReader reads the end of a partition after the coordinator has ended an empty transaction there: forwards from an
// offset before the transaction to its marker, then backwards. The marker has the epoch of the new owner; the partition
// rejects all lower epochs after it, so no record of an earlier owner follows.
// https://kafka.apache.org/documentation/#controlbatch
type tailReader struct {
	link  *link
	part  topicPartition
	owner identity       // of the marker
	ids   map[int64]bool // producer ids of the relay
	since time.Time      // no batch before one that is older needs to be read
	names *namer

	found tailNames
	bytes int
	cut   bool // tailBytes were read before a batch that is old enough
}

var errMarkerMissing = errors.New("the transaction coordinator has not written its marker yet")

// readToMarker reads forwards from the offset from to the marker. The error is errMarkerMissing if it is not there at the
// deadline, and wraps sink.ErrSuperseded if there is one with a higher epoch.
func (t *tailReader) readToMarker(from int64, deadline time.Time) error {
	for {
		batches, behind, err := fetchBatches(t.link, t.part, from, fetchBytes)
		if err != nil {
			return err
		}
		if behind == from && !time.Now().Before(deadline) {
			return errMarkerMissing
		}
		for _, b := range batches {
			if b.Control && b.ProducerID == t.owner.id {
				switch {
				case b.ProducerEpoch == t.owner.epoch:
					return nil
				case b.ProducerEpoch > t.owner.epoch:
					return fmt.Errorf("%w: topic %s, partition %d has the marker of epoch %d, ours is %d",
						sink.ErrSuperseded, t.part.topic, t.part.id, b.ProducerEpoch, t.owner.epoch)
				}
			}
			t.collect(b)
		}
		from = behind
	}
}

// readBack reads backwards from the offset end to oldest, in growing steps, until a batch of the relay is old enough.
func (t *tailReader) readBack(oldest, end int64) error {
	bytes := int32(1) // the first fetch returns one batch
	for step := int64(1); end > oldest; step = min(tailStepGrowth*step, maxTailStep) {
		begin := max(oldest, end-step)
		first, old, err := t.readSpan(begin, end, bytes)
		if err != nil {
			return err
		}
		if old {
			return nil
		}
		if t.bytes >= tailBytes {
			t.cut = true
			return nil
		}
		end, bytes = min(begin, first), fetchBytes
	}
	return nil
}

// readSpan reads the batches that overlap the offsets from begin to before end. It returns the first offset of the first
// one, and whether a batch of the relay is old enough.
func (t *tailReader) readSpan(begin, end int64, bytes int32) (first int64, old bool, err error) {
	first = begin
	for next := begin; next < end; {
		batches, behind, err := fetchBatches(t.link, t.part, next, bytes)
		if err == nil && behind == next {
			err = errEmptyAnswer
		}
		if err != nil {
			return first, old, err
		}
		for _, b := range batches {
			if b.FirstOffset >= end {
				return first, old, nil
			}
			first = min(first, b.FirstOffset)
			if t.collect(b) && b.MaxTimestamp.Before(t.since) {
				old = true
			}
		}
		next = behind
	}
	return first, old, nil
}

// collect keeps the names in a batch, and reports whether an earlier owner has written it.
func (t *tailReader) collect(b *sarama.RecordBatch) bool {
	current := b.ProducerID == t.owner.id && b.ProducerEpoch >= t.owner.epoch
	own := !b.Control && t.ids[b.ProducerID] && !current
	for _, r := range b.Records {
		t.bytes += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			t.bytes += len(h.Key) + len(h.Value)
		}
		if !own {
			continue
		}
		if name := t.names.ofRecord(b, r); name != noName {
			t.found.names = append(t.found.names, name)
		}
	}
	return own
}

// fetchBatches fetches the batches from the one that has the offset from, and returns the offset behind them. It waits a moment
// if there is none. Batches that compaction has emptied are left out.
func fetchBatches(l *link, part topicPartition, from int64, bytes int32) (batches []*sarama.RecordBatch, behind int64, err error) {
	block, err := fetchBlock(l, part, from, bytes, tailWait, sarama.ReadUncommitted)
	if err != nil {
		return nil, from, err
	}
	behind = from
	for _, set := range block.RecordsSet {
		if b := set.RecordBatch; b != nil && !b.PartialTrailingRecord && b.LastOffset() >= from {
			batches, behind = append(batches, b), b.LastOffset()+1
		}
	}
	if len(batches) == 0 {
		behind = max(from, nextOffsetOf(block))
	}
	return batches, behind, nil
}
