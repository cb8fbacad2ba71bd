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
// and complete puts the batches in.
//
// https://kafka.apache.org/protocol#The_Messages_Produce
type request struct {
	shipped  []shipment
	identity identity
	codec    sarama.CompressionCodec

	// Memory that is used again.
	buf        []byte
	records    []byte // of one batch, before compression
	compressor compressor
}

// complete returns the request that msg is the envelope of. It is valid until release.
func (r *request) complete(msg []byte) ([]byte, error) {
	head, flexible, err := openEnvelope(msg)
	if err != nil {
		return nil, err
	}
	w := writer{buf: r.reserve(len(msg)), flexible: flexible}
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

// reserve returns a buffer for a request with an envelope of n bytes.
func (r *request) reserve(n int) []byte {
	for i := range r.shipped {
		n += r.shipped[i].batch.size + len(r.shipped[i].part.topic.name) + 32
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, 0, n+n/8)
	}
	return r.buf[:0]
}

func (r *request) writeTopics(w *writer) error {
	slices.SortStableFunc(r.shipped, func(a, b shipment) int {
		return cmp.Compare(a.part.topic.number, b.part.topic.number)
	})
	topics := 0
	for i := range r.shipped {
		if i == 0 || r.shipped[i].part.topic != r.shipped[i-1].part.topic {
			topics++
		}
	}
	w.length(topics)
	for rest := r.shipped; len(rest) > 0; {
		t := rest[0].part.topic
		n := 1
		for n < len(rest) && rest[n].part.topic == t {
			n++
		}
		w.string(t.name)
		w.length(n)
		for i := range rest[:n] {
			if err := r.writeBatch(w, rest[i].part.id, rest[i].batch); err != nil {
				return err
			}
		}
		w.tags()
		rest = rest[n:]
	}
	w.tags()
	return nil
}

func (r *request) writeBatch(w *writer, partition int32, b *batch) error {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(partition))
	var latest int64
	var begin int
	if r.codec == sarama.CompressionNone {
		begin = w.bytes(b.size)
		w.buf, latest = b.appendRecords(w.buf)
	} else {
		r.records, latest = b.appendRecords(r.records[:0])
		records, err := r.compressor.compress(r.codec, r.records)
		if err != nil {
			return sarama.PacketEncodingError{Info: fmt.Sprintf("compress a batch: %v", err)}
		}
		begin = w.bytes(batchOverhead + len(records))
		w.buf = append(w.buf, records...)
	}
	if size := len(w.buf) - begin; r.codec == sarama.CompressionNone && size != b.size {
		return sarama.PacketEncodingError{Info: fmt.Sprintf("a batch of %d bytes was counted as %d", size, b.size)}
	}
	seal(w.buf[begin:], b, latest, r.codec, r.identity)
	w.tags()
	return nil
}

// release lets go of batches, and of memory that only a very large record has needed.
func (r *request) release() {
	r.shipped = nil
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

// A writer appends what a request is made of besides batches: in flexible versions lengths
// are unsigned varints, one more than they are elsewhere, and tagged fields end a structure.
type writer struct {
	buf      []byte
	flexible bool
}

// length appends that of an array.
func (w *writer) length(n int) {
	if w.flexible {
		w.buf = binary.AppendUvarint(w.buf, uint64(n)+1)
	} else {
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
	}
}

func (w *writer) string(s string) {
	if w.flexible {
		w.length(len(s))
	} else {
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(s)))
	}
	w.buf = append(w.buf, s...)
}

// bytes appends the length n of a batch and room for the batch's header, and returns where
// the batch begins.
func (w *writer) bytes(n int) int {
	w.length(n)
	begin := len(w.buf)
	w.buf = append(w.buf, make([]byte, batchOverhead)...)
	return begin
}

func (w *writer) tags() {
	if w.flexible {
		w.buf = append(w.buf, 0)
	}
}
