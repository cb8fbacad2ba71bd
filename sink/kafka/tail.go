package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A namer computes the names of records, from which a Writer recognises rows that an earlier one has stored. Names are valid in
// this process only.
type namer struct {
	seed  maphash.Seed
	event []string // the headers that say which event a record is of
	place []string // those with the place of a row in the stream
}

func newNamer(cfg *sink.WriterConfig) namer {
	return namer{maphash.MakeSeed(), cfg.EventHeaders, cfg.RowHeaders}
}

// A rowName is the name of a record: hashes of what it has of a row. Nothing makes an id unique, so streamed rows with one event
// may be different ones. The zero rowName is that of a record that has neither an id nor a place.
type rowName struct {
	event uint64 // of the event headers, key and value
	place uint64 // of the place in the stream, or of the timestamp if the record has none
	hasID bool
}

// appendTime stands for the timestamps of a topic in which the broker sets them (message.timestamp.type=LogAppendTime).
const appendTime = -1

// A naming computes one name.
type naming struct {
	of           *namer
	event, place maphash.Hash
	ms           int64
	hasID        bool
	placed       bool
}

func (n *namer) begin(key, value []byte, ms int64) *naming {
	h := &naming{of: n, ms: ms}
	h.event.SetSeed(n.seed)
	h.place.SetSeed(n.seed)
	hashField(&h.event, key)
	hashField(&h.event, value)
	return h
}

func hashField(h *maphash.Hash, b []byte) {
	maphash.WriteComparable(h, length(b))
	_, _ = h.Write(b)
}

func (h *naming) header(key, value []byte) {
	switch name := string(key); {
	case slices.Contains(h.of.event, name):
		h.hasID = true
		hashField(&h.event, key)
		hashField(&h.event, value)
	case name == sink.TimestampHeader: // the broker has rejected the timestamp
		if at, err := time.Parse(sink.TimestampFormat, string(value)); err == nil {
			h.ms = at.UnixMilli()
		}
	case slices.Contains(h.of.place, name):
		h.placed = true
		hashField(&h.place, key)
		hashField(&h.place, value)
	}
}

func (h *naming) name() rowName {
	if !h.placed {
		maphash.WriteComparable(&h.place, h.ms)
	}
	if !h.placed && !h.hasID {
		return rowName{}
	}
	return rowName{h.event.Sum64(), h.place.Sum64(), h.hasID}
}

func (n *namer) ofFrame(f *frame, ms int64) rowName {
	h := n.begin(f.key, f.value, ms)
	for rest := f.headerBytes; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		h.header(key, value)
	}
	return h.name()
}

// ofRecord also returns the timestamp with which the record was sent.
func (n *namer) ofRecord(b *sarama.RecordBatch, r *sarama.Record) (name rowName, sent time.Time) {
	h := n.begin(r.Key, r.Value, b.FirstTimestamp.Add(r.TimestampDelta).UnixMilli())
	for _, header := range r.Headers {
		h.header(header.Key, header.Value)
	}
	if b.LogAppendTime {
		h.ms = appendTime
		return h.name(), b.MaxTimestamp
	}
	return h.name(), time.UnixMilli(h.ms)
}

// tailNames are the names of the records that earlier owners have stored at the end of a partition. It needs 25 bytes for
// each. If several records have one name, it can be taken as often: those that were sent first are stored.
type tailNames struct {
	names []rowName // sorted when all were added
	taken []bool    // in the same order
}

// sort makes the methods below usable.
func (t *tailNames) sort() {
	slices.SortFunc(t.names, rowName.compare)
	t.taken = make([]bool, len(t.names))
}

func (n rowName) compare(m rowName) int {
	return cmp.Or(cmp.Compare(n.event, m.event), cmp.Compare(n.place, m.place))
}

// takeStreamed takes the name of a streamed row, and reports whether it was there.
func (t *tailNames) takeStreamed(name rowName) bool {
	i, _ := slices.BinarySearchFunc(t.names, name, rowName.compare)
	return name != rowName{} && t.takeFrom(i, func(n rowName) bool { return n == name })
}

// takeCopied takes a name with the event of a copied row, and reports whether there was one.
func (t *tailNames) takeCopied(name rowName) bool {
	i, _ := slices.BinarySearchFunc(t.names, name.event, func(n rowName, event uint64) int { return cmp.Compare(n.event, event) })
	return name.hasID && t.takeFrom(i, func(n rowName) bool { return n.event == name.event })
}

// takeFrom takes the first of the names from i on that is not taken, as long as they match.
func (t *tailNames) takeFrom(i int, matches func(rowName) bool) bool {
	for ; i < len(t.names) && matches(t.names[i]); i++ {
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

	coordinator *coordinator // that writes the marker

	found tailNames
	bytes int
	cut   bool // tailBytes were read before a batch that is old enough
}

var errMarkerMissing = errors.New("the transaction coordinator has not written its marker yet")

// readToMarker reads forwards from the offset from to the marker. The error is errMarkerMissing if it is not there at the
// deadline, and wraps sink.ErrSuperseded if there is one with a higher epoch.
func (t *tailReader) readToMarker(from int64, deadline time.Time) error {
	for {
		batches, behind, err := fetchBatches(t.link, t.part, from, fetchBytes, sarama.ReadUncommitted)
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
					return t.coordinator.superseded(fmt.Errorf("topic %s, partition %d has the marker of epoch %d, ours is %d",
						t.part.topic, t.part.id, b.ProducerEpoch, t.owner.epoch))
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
		first, old, err := t.readRange(begin, end, bytes)
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

// readRange reads the batches that overlap the offsets from begin to before end. It returns the first offset of the first
// one, and whether a batch of the relay is old enough.
func (t *tailReader) readRange(begin, end int64, bytes int32) (first int64, old bool, err error) {
	first = begin
	for next := begin; next < end; {
		batches, behind, err := fetchBatches(t.link, t.part, next, bytes, sarama.ReadUncommitted)
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
			old = t.collect(b) || old
		}
		next = behind
	}
	return first, old, nil
}

// collect keeps the names in a batch, and reports whether an earlier owner has written it and it is old enough.
func (t *tailReader) collect(b *sarama.RecordBatch) (old bool) {
	current := b.ProducerID == t.owner.id && b.ProducerEpoch >= t.owner.epoch
	own := !b.Control && t.ids[b.ProducerID] && !current
	old = own
	for _, r := range b.Records {
		t.bytes += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			t.bytes += len(h.Key) + len(h.Value)
		}
		if !own {
			continue
		}
		name, sent := t.names.ofRecord(b, r)
		if name != (rowName{}) {
			t.found.names = append(t.found.names, name)
		}
		old = old && sent.Before(t.since)
	}
	return old
}
