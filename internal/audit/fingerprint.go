package audit

import (
	"encoding/binary"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A fingerprint has a hash of each part of a record. The hash has a random seed, so that writers of rows cannot
// construct two records with the same fingerprint.
type fingerprint struct {
	id      uint64 // of the header id
	place   uint64 // of topic, partition and key: records with the same place are in order
	content uint64 // of the headers in any order, upper half, and the value, lower half
}

// The differences between a record and its row.
const (
	placeDiffers uint16 = 1 << iota
	headersDiffer
	valueDiffers
	rowRejected // no record can be made of the row
)

// compare returns the parts in which a record differs from that of its row.
func (want fingerprint) compare(got fingerprint) (differs uint16) {
	if want.place != got.place {
		differs |= placeDiffers
	}
	if want.content>>32 != got.content>>32 {
		differs |= headersDiffer
	}
	if uint32(want.content) != uint32(got.content) {
		differs |= valueDiffers
	}
	return differs
}

// damage describes differences as far as the fingerprints show them.
func damage(differs uint16) string {
	if differs&rowRejected != 0 {
		return "no record can be made of its row"
	}
	var parts []string
	for i, part := range []string{"topic or key", "headers", "value"} {
		if differs&(1<<i) != 0 {
			parts = append(parts, part)
		}
	}
	return "its " + strings.Join(parts, ", ") + ": not what the row says"
}

// A hasher makes fingerprints. It belongs to one goroutine.
type hasher struct {
	hash   maphash.Hash
	length [8]byte
}

// take returns the fingerprint of a record, without the headers about its delivery: see [ownHeader]. If the record has
// no header id, ok is false.
func (h *hasher) take(rec *sink.Record, partition int32) (f fingerprint, ok bool) {
	for i := range rec.Headers {
		header := &rec.Headers[i]
		if header.Key == encode.IDHeader && !ok {
			f.id, ok = h.ID(header.Value), header.Value != nil
		}
	}
	var headers uint64 // a sum, because not every broker keeps their order
	for i := range rec.Headers {
		if header := &rec.Headers[i]; !ownHeader(header.Key) {
			h.hash.Reset()
			h.text(header.Key)
			h.bytes(header.Value)
			headers += h.hash.Sum64()
		}
	}
	f.content = headers << 32
	h.hash.Reset()
	h.bytes(rec.Value)
	f.content |= h.hash.Sum64() >> 32
	f.place = h.placeOf(rec, partition, f.id)
	return f, ok
}

// ID returns the hash of an id.
func (h *hasher) ID(id []byte) uint64 { return maphash.Bytes(h.hash.Seed(), id) }

// placeOf returns the hash of the place of a record. Records without key and partition have no order, so each has a
// place of its own.
func (h *hasher) placeOf(rec *sink.Record, partition int32, id uint64) uint64 {
	h.hash.Reset()
	h.text(rec.Topic)
	h.number(uint64(uint32(partition)))
	h.bytes(rec.Key)
	if rec.Key == nil && partition == sink.AnyPartition {
		h.number(id)
	}
	return h.hash.Sum64()
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	_, _ = h.hash.WriteString(s) // never fails
}

// bytes adds b. A null is not empty.
func (h *hasher) bytes(b []byte) {
	if b == nil {
		h.number(1 << 63)
		return
	}
	h.number(uint64(len(b)))
	_, _ = h.hash.Write(b) // never fails
}

func (h *hasher) number(n uint64) {
	binary.LittleEndian.PutUint64(h.length[:], n)
	_, _ = h.hash.Write(h.length[:]) // never fails
}

// Headers that are not made from the row.
const (
	debeziumHeaders   = "__debezium." // who sent the record, and from where
	traceParentHeader = "traceparent" // a span of the delivery, if the relay or Kafka Connect traces
	traceStateHeader  = "tracestate"
)

// ownHeader reports whether a header is about the delivery, and not made from the row.
func ownHeader(name string) bool {
	switch name {
	case encode.LSNHeader, sink.TimestampHeader, traceParentHeader, traceStateHeader:
		return true
	}
	return resentHeader(name) || strings.HasPrefix(name, debeziumHeaders)
}

// resentHeader reports whether a header is one of records that replay, refill or dead-letter resend sent.
func resentHeader(name string) bool {
	switch name {
	case "replayed", "refilled", "resent", "resent_from":
		return true
	}
	return false
}

// A delivered has the facts about a delivery from the headers of its record.
type delivered struct {
	resent bool      // out of order by design
	lsn    uint64    // commit LSN; 0: the record has none
	at     time.Time // the timestamp it was sent with
}

func deliveryOf(rec *sink.Record) delivered {
	d := delivered{at: rec.Timestamp}
	for i := range rec.Headers {
		switch h := &rec.Headers[i]; {
		case resentHeader(h.Key):
			d.resent = true
		case h.Key == encode.LSNHeader:
			d.lsn = parseLSN(strings.Trim(string(h.Value), `"`)) // an encoding of headers as JSON has quotes
		case h.Key == sink.TimestampHeader:
			if at, err := time.Parse(time.RFC3339Nano, string(h.Value)); err == nil {
				d.at = at
			}
		}
	}
	return d
}

// parseLSN returns the LSN of a header lsn, or 0 if text is none.
func parseLSN(text string) uint64 {
	text, _, _ = strings.Cut(text, ":") // the index in the transaction follows
	high, low, _ := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, lowErr := strconv.ParseUint(low, 16, 32)
	if err != nil || lowErr != nil {
		return 0
	}
	return h<<32 | l
}
