package kafka

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A frame is a record as it waits in memory: a fixed part, then key, value and headers, back
// to back in a chunk. Frames hold no pointers, so the garbage collector has nothing to look
// at in a full window of them, and a record costs no allocation.
//
//	length 4 | seq 8 | ms 8 | partition 4 | key 4 | value 4 | headers 4 | key … value … headers …
//
// Lengths of -1 are nulls. A header is: key 4 | value 4 | key … value …
type frame struct {
	seq        uint64
	ms         int64 // milliseconds since 1970
	partition  int32 // as given to Send: may be sink.AnyPartition
	key, value []byte
	headers    int
	rest       []byte // the headers, see nextHeader
	raw        []byte // all of it
}

const (
	frameOverhead  = 36
	headerOverhead = 8
	null           = ^uint32(0)
)

// A shape is what the sizes of a record follow from.
type shape struct {
	key, value  int // lengths, -1 for null
	headers     int
	headerBytes int // keys and values of headers, without lengths
	headerWire  int // the same with their lengths, as the record format writes them
}

func shapeOf(r *sink.Record) shape {
	s := shape{key: length(r.Key), value: length(r.Value), headers: len(r.Headers)}
	for i := range r.Headers {
		s.addHeader(len(r.Headers[i].Key), length(r.Headers[i].Value))
	}
	return s
}

func (f *frame) shape() shape {
	s := shape{key: length(f.key), value: length(f.value), headers: f.headers}
	for rest := f.rest; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		s.addHeader(len(key), length(value))
	}
	return s
}

func (s *shape) addHeader(key, value int) {
	s.headerBytes += key + max(value, 0)
	s.headerWire += wireBytes(key) + wireBytes(value)
}

// payload is the number of bytes the user has put in.
func (s *shape) payload() int { return max(s.key, 0) + max(s.value, 0) + s.headerBytes }

// frame is the length of the record's frame.
func (s *shape) frame() int { return frameOverhead + s.payload() + headerOverhead*s.headers }

// wire is the length of the record in a batch of format 2, before compression.
// https://kafka.apache.org/documentation/#recordbatch
func (s *shape) wire(msDelta int64, offset int) int {
	body := s.body(msDelta, offset)
	return varintLen(int64(body)) + body
}

// body is what the length at the beginning of the record says.
func (s *shape) body(msDelta int64, offset int) int {
	return 1 + varintLen(msDelta) + varintLen(int64(offset)) +
		wireBytes(s.key) + wireBytes(s.value) + varintLen(int64(s.headers)) + s.headerWire
}

func wireBytes(n int) int { return varintLen(int64(n)) + max(n, 0) }

// varintLen is the length of x as a zigzag varint.
func varintLen(x int64) int {
	return (bits.Len64(uint64(x<<1^x>>63)|1) + 6) / 7
}

func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// millis returns t as Kafka writes it, now for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		t = time.Now()
	}
	return max(t.UnixMilli(), 0)
}

// putFrame writes r into dst, which is as long as its frame.
func putFrame(dst []byte, r *sink.Record, ms int64) {
	le := binary.LittleEndian
	le.PutUint32(dst, uint32(len(dst)))
	le.PutUint64(dst[4:], r.Seq)
	le.PutUint64(dst[12:], uint64(ms))
	le.PutUint32(dst[20:], uint32(r.Partition))
	le.PutUint32(dst[24:], uint32(length(r.Key)))
	le.PutUint32(dst[28:], uint32(length(r.Value)))
	le.PutUint32(dst[32:], uint32(len(r.Headers)))
	n := frameOverhead
	n += copy(dst[n:], r.Key)
	n += copy(dst[n:], r.Value)
	for i := range r.Headers {
		h := &r.Headers[i]
		le.PutUint32(dst[n:], uint32(len(h.Key)))
		le.PutUint32(dst[n+4:], uint32(length(h.Value)))
		n += headerOverhead
		n += copy(dst[n:], h.Key)
		n += copy(dst[n:], h.Value)
	}
}

// readFrame returns the first frame of b, which aliases b, and what follows it.
func readFrame(b []byte) (frame, []byte) {
	le := binary.LittleEndian
	n := le.Uint32(b)
	f := frame{
		seq:       le.Uint64(b[4:]),
		ms:        int64(le.Uint64(b[12:])),
		partition: int32(le.Uint32(b[20:])),
		headers:   int(le.Uint32(b[32:])),
		raw:       b[:n:n],
	}
	rest := f.raw[frameOverhead:]
	f.key, rest = take(rest, le.Uint32(b[24:]))
	f.value, rest = take(rest, le.Uint32(b[28:]))
	f.rest = rest
	return f, b[n:]
}

// record returns f as the record it was made of, without the topic. It aliases f.
func (f *frame) record() sink.Record {
	r := sink.Record{Seq: f.seq, Partition: f.partition, Key: f.key, Value: f.value, Timestamp: time.UnixMilli(f.ms)}
	for rest := f.rest; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		r.Headers = append(r.Headers, sink.Header{Key: string(key), Value: value})
	}
	return r
}

// frameSeq returns the sequence of the first frame of b and what follows that frame.
func frameSeq(b []byte) (seq uint64, rest []byte) {
	return binary.LittleEndian.Uint64(b[4:]), b[binary.LittleEndian.Uint32(b):]
}

// nextHeader returns the first header of b and what follows it.
func nextHeader(b []byte) (key, value, rest []byte) {
	keyLen, valueLen := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	key, rest = take(b[headerOverhead:], keyLen)
	value, rest = take(rest, valueLen)
	return key, value, rest
}

// take cuts n bytes off b; a null is nil, and nothing else is.
func take(b []byte, n uint32) (head, tail []byte) {
	if n == null {
		return nil, b
	}
	return b[:n:n], b[n:]
}
