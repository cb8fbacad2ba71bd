package kafka

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/IBM/sarama"
)

// Where fields are in a batch of format 2.
// https://kafka.apache.org/documentation/#recordbatch
const (
	batchLengthAt  = 8
	leaderEpochAt  = 12
	magicAt        = 16
	checksumAt     = 17
	attributesAt   = 21 // what the checksum covers begins here
	lastOffsetAt   = 23
	firstMSAt      = 27
	maxMSAt        = 35
	producerIDAt   = 43
	epochAt        = 51
	baseSequenceAt = 53
	countAt        = 57
)

// seal fills in the header of the batch that dst is, whose records are in their place behind
// it.
func seal(dst []byte, b *batch, latestMS int64, codec sarama.CompressionCodec, id identity) {
	be := binary.BigEndian
	clear(dst[:batchLengthAt])
	be.PutUint32(dst[batchLengthAt:], uint32(len(dst)-leaderEpochAt))
	be.PutUint32(dst[leaderEpochAt:], ^uint32(0)) // the broker's to say
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

// appendRecords appends b's records in the record format, and returns the latest of their
// times too.
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
	dst = binary.AppendVarint(dst, int64(s.body(msDelta, offset)))
	dst = append(dst, 0) // attributes: there are none yet
	dst = binary.AppendVarint(dst, msDelta)
	dst = binary.AppendVarint(dst, int64(offset))
	dst = appendBytes(dst, f.key)
	dst = appendBytes(dst, f.value)
	dst = binary.AppendVarint(dst, int64(f.headers))
	for rest := f.rest; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		dst = appendBytes(dst, key)
		dst = appendBytes(dst, value)
	}
	return dst
}

// appendBytes appends b behind its length, or a null.
func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendVarint(dst, int64(length(b)))
	return append(dst, b...)
}
