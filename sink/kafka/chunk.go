package kafka

import (
	"math/bits"
	"sync"
)

const (
	minChunk = 512      // the first chunk of a batch: what a partition with one record costs
	maxChunk = 64 << 10 // the largest chunk that is not made for one record
)

// A chunkPool hands out byte slices whose capacity is a power of two. What it hands out and
// what it keeps add up to at most limit, unless limit is all in use: then it keeps nothing.
// Methods may be called from any goroutine.
//
// limit should be a little more than is ever out: else what is idle in the wrong sizes is
// thrown away for the right ones, over and over.
type chunkPool struct {
	limit int

	mu   sync.Mutex
	free [40][][]byte // by size class: free[c] holds capacities of minChunk<<c
	out  int          // bytes handed out
	idle int          // bytes in free
}

// get returns an empty chunk that n bytes fit into.
func (p *chunkPool) get(n int) []byte {
	class := classOf(n)
	size := minChunk << class
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out += size
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

// put takes back a chunk that get has returned.
func (p *chunkPool) put(chunk []byte) {
	class := classOf(cap(chunk))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out -= cap(chunk)
	p.idle += cap(chunk)
	p.free[class] = append(p.free[class], chunk[:0])
	p.trim()
}

// trim leaves idle chunks to the garbage collector, largest first, until the limit holds.
// p.mu is held.
func (p *chunkPool) trim() {
	for class := len(p.free) - 1; class >= 0 && p.out+p.idle > p.limit; class-- {
		for f := p.free[class]; len(f) > 0 && p.out+p.idle > p.limit; f = p.free[class] {
			f[len(f)-1] = nil
			p.free[class] = f[:len(f)-1]
			p.idle -= minChunk << class
		}
	}
}

// classOf returns the smallest class whose chunks hold n bytes.
func classOf(n int) int {
	return bits.Len(uint(max(n, 1)-1) / minChunk)
}
