package checkpoint

import "math/bits"

const (
	wordBits = 64

	// A window starts with one word. One of more than keepWords (65,536
	// records, more than a producer usually has in flight) is halved when an
	// eighth of it would do; up to there memory stays, so that bursts cost no
	// allocation.
	keepWords = 1024
)

// A window holds one bit for each record between the oldest unacknowledged and
// the newest one, set if the record is acknowledged.
type window struct {
	// words is a ring: record seq is bit seq%64 of word seq/64 modulo its
	// length, a power of two. Bits outside the window are clear.
	words []uint64
}

func newWindow() window {
	return window{words: make([]uint64, 1)}
}

func (w *window) word(seq Seq) *uint64 {
	return &w.words[uint64(seq)/wordBits&uint64(len(w.words)-1)]
}

func (w *window) has(seq Seq) bool {
	return *w.word(seq)>>(seq%wordBits)&1 == 1
}

func (w *window) add(seq Seq) {
	*w.word(seq) |= 1 << (seq % wordBits)
}

// wordsFor returns how many words the records lo to hi lie in.
func wordsFor(lo, hi Seq) int {
	return int(hi/wordBits-lo/wordBits) + 1
}

// cover makes room for record hi in a window that holds lo to hi-1.
func (w *window) cover(lo, hi Seq) {
	if wordsFor(lo, hi) > len(w.words) {
		w.resize(2*len(w.words), lo, hi-1)
	}
}

// consume clears the acknowledged records that follow base without a gap, and
// returns the last of them, or base. The window holds base+1 to last.
func (w *window) consume(base, last Seq) Seq {
	from := base
	for base < last {
		word, offset := w.word(base+1), (base+1)%wordBits
		run := bits.TrailingZeros64(^(*word >> offset))
		*word &^= (1<<run - 1) << offset
		base += Seq(run)
		if int(offset)+run < wordBits {
			break
		}
	}
	if base != from {
		w.shrink(base+1, last)
	}
	return base
}

// shrink gives memory back; the window holds lo to hi, or nothing if lo > hi.
func (w *window) shrink(lo, hi Seq) {
	size, need := len(w.words), wordsFor(lo, max(lo, hi))
	for size > keepWords && need <= size/8 {
		size /= 2
	}
	if size < len(w.words) {
		w.resize(size, lo, hi)
	}
}

// resize moves the records lo to hi to a ring of size words.
func (w *window) resize(size int, lo, hi Seq) {
	old := *w
	w.words = make([]uint64, size)
	for i := lo / wordBits; i <= hi/wordBits; i++ {
		*w.word(i * wordBits) = *old.word(i * wordBits)
	}
}
