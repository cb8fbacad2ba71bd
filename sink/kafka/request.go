package kafka

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// maxRequestBytes is how large a request gets, unless its only batch is larger.
const maxRequestBytes = 1 << 20

// A request builds the produce requests of one sender. sarama makes an envelope without batches,
// and addBatches adds them.
//
// https://kafka.apache.org/protocol#The_Messages_Produce
type request struct {
	batches  []sentBatch
	identity identity
	codec    sarama.CompressionCodec

	// Memory that is used again.
	buf        []byte
	records    []byte // of one batch, before compression
	compressor compressor
}

// addBatches returns the request whose envelope is msg, with its batches. It is valid until
// releaseBatches.
func (r *request) addBatches(msg []byte) ([]byte, error) {
	head, flexible, err := openEnvelope(msg)
	if err != nil {
		return nil, err
	}
	w := requestWriter{buf: r.reserveBuffer(len(msg)), flexible: flexible}
	w.buf = append(w.buf, head...)
	if err := r.writeTopics(&w); err != nil {
		return nil, err
	}
	r.buf = w.buf
	if len(w.buf) > int(sarama.MaxRequestSize) {
		return nil, sarama.PacketEncodingError{Info: fmt.Sprintf("the produce request has %d bytes", len(w.buf))}
	}
	binary.BigEndian.PutUint32(w.buf, uint32(len(w.buf)-4))
	return w.buf, nil
}

// reserveBuffer returns a buffer for a request with an envelope of n bytes.
func (r *request) reserveBuffer(n int) []byte {
	for i := range r.batches {
		n += r.batches[i].batch.size + len(r.batches[i].part.topic.name) + 32
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, 0, n+n/8)
	}
	return r.buf[:0]
}

func (r *request) writeTopics(w *requestWriter) error {
	slices.SortStableFunc(r.batches, func(a, b sentBatch) int {
		return cmp.Compare(a.part.topic.index, b.part.topic.index)
	})
	topics := 0
	for i := range r.batches {
		if i == 0 || r.batches[i].part.topic != r.batches[i-1].part.topic {
			topics++
		}
	}
	w.arrayLength(topics)
	for rest := r.batches; len(rest) > 0; {
		t := rest[0].part.topic
		n := 1
		for n < len(rest) && rest[n].part.topic == t {
			n++
		}
		w.string(t.name)
		w.arrayLength(n)
		for i := range rest[:n] {
			if err := r.writeBatch(w, rest[i].part.id, rest[i].batch); err != nil {
				return err
			}
		}
		w.emptyTags()
		rest = rest[n:]
	}
	w.emptyTags()
	return nil
}

func (r *request) writeBatch(w *requestWriter, partition int32, b *batch) error {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(partition))
	var latest int64
	var begin int
	if r.codec == sarama.CompressionNone {
		begin = w.reserveBatch(b.size)
		w.buf, latest = b.appendRecords(w.buf)
	} else {
		r.records, latest = b.appendRecords(r.records[:0])
		records, err := r.compressor.compress(r.codec, r.records)
		if err != nil {
			return sarama.PacketEncodingError{Info: fmt.Sprintf("compress a batch: %v", err)}
		}
		begin = w.reserveBatch(batchOverhead + len(records))
		w.buf = append(w.buf, records...)
	}
	if size := len(w.buf) - begin; r.codec == sarama.CompressionNone && size != b.size {
		return sarama.PacketEncodingError{Info: fmt.Sprintf("a batch of %d bytes was counted as %d", size, b.size)}
	}
	writeBatchHeader(w.buf[begin:], b, latest, r.codec, r.identity)
	w.emptyTags()
	return nil
}

// releaseBatches drops the batches, and memory that only a very large record has needed.
func (r *request) releaseBatches() {
	r.batches = nil
	const enough = 2 * maxRequestBytes
	if cap(r.buf) > enough {
		r.buf = nil
	}
	if cap(r.records) > enough {
		r.records = nil
	}
	if cap(r.compressor.out.b) > enough {
		r.compressor.out.b = nil
	}
}

// A requestWriter appends what a request is made of besides batches: in flexible versions lengths
// are unsigned varints, one more than they are elsewhere, and tagged fields end a structure.
type requestWriter struct {
	buf      []byte
	flexible bool
}

// arrayLength appends the length of an array.
func (w *requestWriter) arrayLength(n int) {
	if w.flexible {
		w.buf = binary.AppendUvarint(w.buf, uint64(n)+1)
	} else {
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
	}
}

func (w *requestWriter) string(s string) {
	if w.flexible {
		w.arrayLength(len(s))
	} else {
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(s)))
	}
	w.buf = append(w.buf, s...)
}

// reserveBatch appends the length n of a batch and room for the batch's header, and returns where
// the batch begins.
func (w *requestWriter) reserveBatch(n int) int {
	w.arrayLength(n)
	begin := len(w.buf)
	w.buf = append(w.buf, make([]byte, batchOverhead)...)
	return begin
}

func (w *requestWriter) emptyTags() {
	if w.flexible {
		w.buf = append(w.buf, 0)
	}
}
