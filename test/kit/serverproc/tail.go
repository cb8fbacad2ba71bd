package serverproc

import (
	"io"
	"sync"
)

const tailBytes = 8 << 10

// A Tail forwards the output of a server and keeps the last few kilobytes for
// error messages. It is safe for concurrent use.
type Tail struct {
	next io.Writer // may be nil

	mu   sync.Mutex
	last []byte // at most 2*tailBytes
}

// NewTail returns a Tail that forwards to next, which may be nil.
func NewTail(next io.Writer) *Tail { return &Tail{next: next} }

// Write keeps p and forwards it. It ignores the errors of next.
func (w *Tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last, p...)
	if n := len(w.last); n > 2*tailBytes {
		w.last = append(w.last[:0], w.last[n-tailBytes:]...)
	}
	if w.next != nil {
		_, _ = w.next.Write(p) // after an error, the server's output must still be read
	}
	return len(p), nil
}

// String returns the last few kilobytes.
func (w *Tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.last[max(0, len(w.last)-tailBytes):])
}
