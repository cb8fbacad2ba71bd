package kafka

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A frame is a buffered record: a fixed part, then key, value and headers, in contiguous memory of a chunk.
// Frames have no pointers, so the garbage collector need not scan them, and a record costs no allocation.
//
//	length 4 | seq 8 | ms 8 | partition 4 | key 4 | value 4 | headers 4 | key … value … headers …
//
// Lengths of -1 are nulls. A header is: key 4 | value 4 | key … value …
type frame struct {
	seq         uint64
	ms          int64 // milliseconds since 1970
	partition   int32 // see partitionOf
	key, value  []byte
	headers     int
	headerBytes []byte // the headers, see nextHeader
	raw         []byte // the whole frame
}

const (
	frameOverhead  = 36
	headerOverhead = 8
	null           = ^uint32(0)
)

// A shape has the lengths from which the sizes of a record are computed.
type shape struct {
	key, value  int // lengths, -1 for null
	headers     int
	headerBytes int // size of keys and values of headers
	headerWire  int // size of the headers in the record format, with lengths
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
	for rest := f.headerBytes; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		s.addHeader(len(key), length(value))
	}
	return s
}

func (s *shape) addHeader(key, value int) {
	s.headerBytes += key + max(value, 0)
	s.headerWire += wireLen(key) + wireLen(value)
}

// payloadSize returns the size of key, value and headers.
func (s *shape) payloadSize() int { return max(s.key, 0) + max(s.value, 0) + s.headerBytes }

// frameSize returns the size of the record's frame.
func (s *shape) frameSize() int { return frameOverhead + s.payloadSize() + headerOverhead*s.headers }

// wireSize returns the size of the record in a batch of format 2, before compression.
// https://kafka.apache.org/documentation/#recordbatch
func (s *shape) wireSize(msDelta int64, offset int) int {
	body := s.bodySize(msDelta, offset)
	return varintLen(int64(body)) + body
}

// bodySize returns the length field of the record.
func (s *shape) bodySize(msDelta int64, offset int) int {
	return 1 + varintLen(msDelta) + varintLen(int64(offset)) +
		wireLen(s.key) + wireLen(s.value) + varintLen(int64(s.headers)) + s.headerWire
}

func wireLen(n int) int { return varintLen(int64(n)) + max(n, 0) }

// varintLen returns the length of x as a zigzag varint.
func varintLen(x int64) int {
	return (bits.Len64(uint64(x<<1^x>>63)|1) + 6) / 7
}

func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// millis returns t in Unix milliseconds, or the current time for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		t = time.Now()
	}
	return max(t.UnixMilli(), 0)
}

// stretch is how much WAL the rows without a key of one partition have, before those of the next partition follow: enough for a
// batch.
const stretch = 1 << 20

// partitionOf returns the partition of r, or a negative number. That is sink.AnyPartition, or one below it that chooses a partition:
// that of a streamed row without a key depends on its position, so that the next owner finds the row where this one
// has stored it.
func partitionOf(r *sink.Record) int32 {
	if r.Partition != sink.AnyPartition || r.Key != nil || r.Position.IsZero() {
		return r.Partition
	}
	return sink.AnyPartition - 1 - int32(r.Position.CommitLSN/stretch%math.MaxInt16)
}

// putFrame writes r to dst, which has the size of its frame.
func putFrame(dst []byte, r *sink.Record, ms int64) {
	le := binary.LittleEndian
	le.PutUint32(dst, uint32(len(dst)))
	le.PutUint64(dst[4:], r.Seq)
	le.PutUint64(dst[12:], uint64(ms))
	le.PutUint32(dst[20:], uint32(partitionOf(r)))
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

// readFrame returns the first frame of b, which aliases b, and the rest of b.
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
	f.key, rest = splitField(rest, le.Uint32(b[24:]))
	f.value, rest = splitField(rest, le.Uint32(b[28:]))
	f.headerBytes = rest
	return f, b[n:]
}

// record returns the record of f, without the topic. It aliases f.
func (f *frame) record() sink.Record {
	r := sink.Record{Seq: f.seq, Partition: max(f.partition, sink.AnyPartition), Key: f.key, Value: f.value, Timestamp: time.UnixMilli(f.ms)}
	for rest := f.headerBytes; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		r.Headers = append(r.Headers, sink.Header{Key: string(key), Value: value})
	}
	return r
}

// frameSeq returns the sequence of the first frame of b, and the rest of b.
func frameSeq(b []byte) (seq uint64, rest []byte) {
	return binary.LittleEndian.Uint64(b[4:]), b[binary.LittleEndian.Uint32(b):]
}

// nextHeader returns the first header of b, and the rest of b.
func nextHeader(b []byte) (key, value, rest []byte) {
	keyLen, valueLen := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	key, rest = splitField(b[headerOverhead:], keyLen)
	value, rest = splitField(rest, valueLen)
	return key, value, rest
}

// splitField splits b after its first n bytes. head is nil only for a null.
func splitField(b []byte, n uint32) (head, tail []byte) {
	if n == null {
		return nil, b
	}
	return b[:n:n], b[n:]
}

// frames is a sequence of frames in chunks, from minChunk to maxChunk. A new chunk has about a quarter of the memory of
// those before it, because a part of the last one is unused. A frame is never split; one that is larger than maxChunk has
// its own chunk. The zero value is empty and uses no memory.
type frames struct {
	chunks   [][]byte
	records  int
	payload  int // size of keys, values and headers
	capacity int // capacity of chunks
}

// reserve adds a frame of the given shape to fs and returns its memory.
func (fs *frames) reserve(pool *chunkPool, s *shape) []byte {
	n := s.frameSize()
	last := len(fs.chunks) - 1
	if last < 0 || cap(fs.chunks[last])-len(fs.chunks[last]) < n {
		chunk := pool.get(max(n, min(fs.capacity/4, maxChunk)))
		fs.chunks = append(fs.chunks, chunk)
		fs.capacity += cap(chunk)
		last++
	}
	chunk := fs.chunks[last]
	end := len(chunk) + n
	fs.chunks[last] = chunk[:end]
	fs.records++
	fs.payload += s.payloadSize()
	return chunk[end-n : end]
}

// appendFrames moves the frames of more to the end of fs.
func (fs *frames) appendFrames(more *frames) {
	fs.chunks = append(fs.chunks, more.chunks...)
	fs.records += more.records
	fs.payload += more.payload
	fs.capacity += more.capacity
	*more = frames{}
}

// release returns all memory to pool and leaves fs empty.
func (fs *frames) release(pool *chunkPool) {
	for i, chunk := range fs.chunks {
		pool.put(chunk)
		fs.chunks[i] = nil
	}
	*fs = frames{chunks: fs.chunks[:0]}
}

// appendSeqs appends the sequence of every frame to dst.
func (fs *frames) appendSeqs(dst []uint64) []uint64 {
	for _, chunk := range fs.chunks {
		for len(chunk) > 0 {
			var seq uint64
			seq, chunk = frameSeq(chunk)
			dst = append(dst, seq)
		}
	}
	return dst
}

// all iterates over the frames in order. A frame is valid until its chunk is released.
func (fs *frames) all(yield func(frame) bool) {
	for _, chunk := range fs.chunks {
		for len(chunk) > 0 {
			var f frame
			f, chunk = readFrame(chunk)
			if !yield(f) {
				return
			}
		}
	}
}

// filter keeps the frames for which keep returns true, and returns how many it has removed. If there are any, the others are copied.
func (fs *frames) filter(pool *chunkPool, keep func(f *frame) bool) (removed int) {
	var kept frames
	before := 0 // frames before the first removed one
	for f := range fs.all {
		switch {
		case !keep(&f):
			if removed == 0 {
				kept.copyFirst(pool, fs, before)
			}
			removed++
		case removed > 0:
			kept.appendFrame(pool, &f)
		default:
			before++
		}
	}
	if removed > 0 {
		fs.release(pool)
		*fs = kept
	}
	return removed
}

// copyFirst copies the first n frames of from to fs.
func (fs *frames) copyFirst(pool *chunkPool, from *frames, n int) {
	for f := range from.all {
		if n == 0 {
			return
		}
		n--
		fs.appendFrame(pool, &f)
	}
}

// appendFrame copies f to the end of fs.
func (fs *frames) appendFrame(pool *chunkPool, f *frame) {
	s := f.shape()
	copy(fs.reserve(pool, &s), f.raw)
}

const (
	minChunk = 512      // size of the first chunk of a batch: the memory of a partition with one record
	maxChunk = 64 << 10 // maximum size of a chunk for several records
)

// A chunkPool allocates byte slices whose capacity is a power of two. The slices in use and the idle slices have
// at most limit bytes. If those in use exceed limit, the pool keeps no idle slices. Methods may be called from
// any goroutine.
//
// limit should be a little more than the maximum in use. Otherwise the pool releases idle slices of one size
// again and again to allocate another size.
type chunkPool struct {
	mu    sync.Mutex
	limit int
	free  [40][][]byte // by size class: free[c] holds capacities of minChunk<<c
	out   atomic.Int64 // bytes in use; it changes with mu held
	idle  int          // bytes in free
}

// setLimit changes the limit.
func (p *chunkPool) setLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	p.trim()
}

// get returns an empty chunk with a capacity of at least n bytes.
func (p *chunkPool) get(n int) []byte {
	class := classOf(n)
	size := minChunk << class
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Add(int64(size))
	if f := p.free[class]; len(f) > 0 {
		chunk := f[len(f)-1]
		f[len(f)-1] = nil
		p.free[class] = f[:len(f)-1]
		p.idle -= size
		return chunk
	}
	p.trim()
	return make([]byte, 0, size)
}

// put returns a chunk to the pool.
func (p *chunkPool) put(chunk []byte) {
	class := classOf(cap(chunk))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Add(-int64(cap(chunk)))
	p.idle += cap(chunk)
	p.free[class] = append(p.free[class], chunk[:0])
	p.trim()
}

// inUse returns the size of the chunks that were not put back.
func (p *chunkPool) inUse() int { return int(p.out.Load()) }

// trim releases idle chunks, the largest first, until the limit is met. p.mu is held.
func (p *chunkPool) trim() {
	for class := len(p.free) - 1; class >= 0 && p.inUse()+p.idle > p.limit; class-- {
		for f := p.free[class]; len(f) > 0 && p.inUse()+p.idle > p.limit; f = p.free[class] {
			f[len(f)-1] = nil
			p.free[class] = f[:len(f)-1]
			p.idle -= minChunk << class
		}
	}
}

// classOf returns the smallest size class for n bytes.
func classOf(n int) int {
	return bits.Len(uint(max(n, 1)-1) / minChunk)
}
