package checkpoint

import "math/bits"

const (
	wordBits = 64

	// keepWords is the size up to which a window keeps its memory, so that bursts do
	// not allocate: 65,536 records, more than a producer usually has in flight. A larger
	// window is halved when an eighth of it would be enough.
	keepWords = 1024
)

// A window has one bit for each record from the oldest unacknowledged one to the
// newest. The bit is set if the record is acknowledged.
type window struct {
	// words is a ring whose length is a power of two. Record seq is bit seq%64 of word
	// seq/64, modulo the length. Bits outside of the window are clear.
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

// wordsFor returns how many words the records lo to hi need.
func wordsFor(lo, hi Seq) int {
	return int(hi/wordBits-lo/wordBits) + 1
}

// cover makes room for record hi in a window of the records lo to hi-1.
func (w *window) cover(lo, hi Seq) {
	if wordsFor(lo, hi) > len(w.words) {
		w.resize(2*len(w.words), lo, hi-1)
	}
}

// consume clears the acknowledged records that follow base without a gap. It returns the
// last of them, or base if there are none. The window has the records base+1 to last.
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

// shrink releases memory. The window has the records lo to hi, or none if lo > hi.
func (w *window) shrink(lo, hi Seq) {
	size, need := len(w.words), wordsFor(lo, max(lo, hi))
	for size > keepWords && need <= size/8 {
		size /= 2
	}
	if size < len(w.words) {
		w.resize(size, lo, hi)
	}
}

// resize copies the records lo to hi to a ring of size words.
func (w *window) resize(size int, lo, hi Seq) {
	old := *w
	w.words = make([]uint64, size)
	for i := lo / wordBits; i <= hi/wordBits; i++ {
		*w.word(i * wordBits) = *old.word(i * wordBits)
	}
}
