package kafka

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/IBM/sarama"
)

const (
	// batchOverhead is the size of a record batch without records.
	batchOverhead = 61

	// maxBatchBytes limits batches of more than one record, even if the topic accepts larger
	// ones, which would only make requests slower.
	maxBatchBytes = 1_000_000

	// noSequence marks a batch that was never sent with the current producer id.
	noSequence = -1
)

// A batch is a record batch of one partition. It is open until it is sent for the first time. After that,
// its records stay together until they have an outcome, or until the broker has rejected the batch.
type batch struct {
	frames
	size           int   // bytes on the wire, before compression
	sequence       int32 // of the first record, or noSequence
	firstMS        int64 // of the first record
	corruptAnswers int   // number of responses in a row that called it corrupt
	sealed         bool
	excess         bool // its one record was too large for the topic: see producer.rejectInTurn
	sent           bool // at least once: it may be in the log
}

// reserveRecord adds a record to b and returns the memory for its frame.
func (b *batch) reserveRecord(pool *chunkPool, s *shape, ms int64) []byte {
	if b.records == 0 {
		b.size, b.firstMS, b.sequence = batchOverhead, ms, noSequence
	}
	b.size += s.wireSize(ms-b.firstMS, b.records)
	return b.reserve(pool, s)
}

// fitsRecord reports whether b is open and has at most limit bytes with one more record.
func (b *batch) fitsRecord(s *shape, ms int64, limit int) bool {
	return !b.sealed && b.size+s.wireSize(ms-b.firstMS, b.records) <= limit
}

// measureSize recomputes the size of b, after records were dropped from its end.
func (b *batch) measureSize() {
	b.size = batchOverhead
	offset := 0
	for f := range b.all {
		s := f.shape()
		b.size += s.wireSize(f.ms-b.firstMS, offset)
		offset++
	}
}

// reset releases the memory of b, so that b can be reused.
func (b *batch) reset(pool *chunkPool) {
	b.release(pool)
	*b = batch{frames: b.frames}
}

// Offsets of fields in a batch of format 2.
// https://kafka.apache.org/documentation/#recordbatch
const (
	batchLengthAt  = 8
	leaderEpochAt  = 12
	magicAt        = 16
	checksumAt     = 17
	attributesAt   = 21 // start of the bytes that the checksum covers
	lastOffsetAt   = 23
	firstMSAt      = 27
	maxMSAt        = 35
	producerIDAt   = 43
	epochAt        = 51
	baseSequenceAt = 53
	countAt        = 57
)

// writeBatchHeader writes the header of the batch in dst, which already has the records.
func writeBatchHeader(dst []byte, b *batch, latestMS int64, codec sarama.CompressionCodec, id identity) {
	be := binary.BigEndian
	clear(dst[:batchLengthAt])
	be.PutUint32(dst[batchLengthAt:], uint32(len(dst)-leaderEpochAt))
	be.PutUint32(dst[leaderEpochAt:], ^uint32(0)) // the broker sets it
	dst[magicAt] = 2
	be.PutUint16(dst[attributesAt:], uint16(codec))
	be.PutUint32(dst[lastOffsetAt:], uint32(b.records-1))
	be.PutUint64(dst[firstMSAt:], uint64(b.firstMS))
	be.PutUint64(dst[maxMSAt:], uint64(latestMS))
	be.PutUint64(dst[producerIDAt:], uint64(id.id))
	be.PutUint16(dst[epochAt:], uint16(id.epoch))
	be.PutUint32(dst[baseSequenceAt:], uint32(b.sequence))
	be.PutUint32(dst[countAt:], uint32(b.records))
	be.PutUint32(dst[checksumAt:], crc32.Checksum(dst[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
}

// appendRecords appends the records of b in the record format. It also returns the latest timestamp.
func (b *batch) appendRecords(dst []byte) (extended []byte, latestMS int64) {
	offset := 0
	for f := range b.all {
		latestMS = max(latestMS, f.ms)
		dst = f.appendRecord(dst, f.ms-b.firstMS, offset)
		offset++
	}
	return dst, latestMS
}

// appendRecord appends f in the record format.
func (f *frame) appendRecord(dst []byte, msDelta int64, offset int) []byte {
	s := f.shape()
	dst = binary.AppendVarint(dst, int64(s.bodySize(msDelta, offset)))
	dst = append(dst, 0) // attributes: none are defined
	dst = binary.AppendVarint(dst, msDelta)
	dst = binary.AppendVarint(dst, int64(offset))
	dst = appendBytes(dst, f.key)
	dst = appendBytes(dst, f.value)
	dst = binary.AppendVarint(dst, int64(f.headers))
	for rest := f.headerBytes; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		dst = appendBytes(dst, key)
		dst = appendBytes(dst, value)
	}
	return dst
}

// appendBytes appends the length of b and b, or a null.
func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendVarint(dst, int64(length(b)))
	return append(dst, b...)
}
