package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pglogrepl"
)

// headerSize is the kind and the length of a message.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
const headerSize = 5

// Kinds of messages the server sends while a copy runs and at its end.
const (
	kindCopyBoth        = 'W'
	kindCopyData        = 'd'
	kindCopyDone        = 'c'
	kindCommandComplete = 'C'
	kindError           = 'E'
	kindNotice          = 'N'
	kindParameter       = 'S'
	kindReady           = 'Z'
)

// A wire cuts what the server sends into messages, in place: it reads into buf and hands
// out slices of it. A read that ends by a deadline loses nothing, so reading may go on
// after it, in the middle of a message as well.
type wire struct {
	conn net.Conn
	max  int // a longer message is not for buf
	lead int // what has been received of a message that is too large when that is said
	buf  []byte
	r, w int // buf[r:w] is received and not cut yet

	skipping int // bytes to be thrown away before the next message

	filled bool // the last read left no room: more may be waiting
}

// A largeError says that a message exceeds buf or max. Nothing of it is cut; its first lead
// bytes have been received.
type largeError struct{ size int }

func (e *largeError) Error() string { return fmt.Sprintf("message of %d bytes", e.size) }

// next cuts one message. ok is false if it has not been received completely.
func (w *wire) next() (kind byte, body []byte, ok bool, err error) {
	if w.skipping > 0 && !w.skipped() {
		return 0, nil, false, nil
	}
	size, known := w.size()
	if !known {
		return 0, nil, false, nil
	}
	if size < headerSize {
		return 0, nil, false, fmt.Errorf("server sent a message of length %d", size)
	}
	switch received := w.w - w.r; {
	case received >= size && size <= w.max:
	case received >= min(size, w.lead) && (size > len(w.buf) || size > w.max):
		return 0, nil, false, &largeError{size}
	default:
		return 0, nil, false, nil
	}
	m := w.buf[w.r : w.r+size : w.r+size]
	w.r += size
	return m[0], m[headerSize:], true, nil
}

// size returns the length of the next message with its header, as soon as that is known.
func (w *wire) size() (n int, known bool) {
	if w.w-w.r < headerSize {
		return 0, false
	}
	return 1 + int(int32(binary.BigEndian.Uint32(w.buf[w.r+1:]))), true
}

// use makes buf the memory to read into; what is not cut yet moves there.
func (w *wire) use(buf []byte) {
	n := copy(buf, w.buf[w.r:w.w])
	w.buf, w.r, w.w = buf, 0, n
}

// change returns the position and the first bytes of the WAL data that comes next, of which
// lead bytes have been received. ok is false if something else comes.
func (w *wire) change() (start pglogrepl.LSN, data []byte, ok bool) {
	m := w.buf[w.r:w.w]
	if len(m) < headerSize+walHeaderSize || m[0] != kindCopyData || m[headerSize] != 'w' {
		return 0, nil, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(m[headerSize+1:])), m[headerSize+walHeaderSize:], true
}

// skip has the next message thrown away, whose length is size, as it arrives.
func (w *wire) skip(size int) { w.skipping = size }

// skipped throws away what has been received of it, and reports whether that was all.
func (w *wire) skipped() bool {
	n := min(w.skipping, w.w-w.r)
	w.r += n
	w.skipping -= n
	return w.skipping == 0
}

// read receives at least one byte. It makes room first if there is none behind w: that
// overwrites messages cut before.
func (w *wire) read() error {
	if w.w == len(w.buf) {
		w.use(w.buf)
	}
	n, err := w.conn.Read(w.buf[w.w:])
	w.w += n
	w.filled = w.w == len(w.buf)
	if n > 0 {
		return nil // an error comes again
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
