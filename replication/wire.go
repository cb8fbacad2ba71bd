package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pglogrepl"
)

// headerSize is the size of a message header: type and length.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
const headerSize = 5

// Types of the messages that the server sends during a copy and at its end.
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

// A wire reads from the connection into buf and returns messages as slices of it. A read that
// ends at a deadline loses no data, even inside a message: a later read continues.
type wire struct {
	conn net.Conn
	max  int // maximum size of a message
	lead int // how many bytes of a too large message are received before next reports it
	buf  []byte
	r, w int // buf[r:w] is received and not parsed yet

	skipping int // bytes to discard before the next message

	filled bool // the last read filled buf, so more data may be waiting
}

// A largeError says that the next message exceeds buf or max. It is not parsed; its first lead
// bytes are received.
type largeError struct{ size int }

func (e *largeError) Error() string { return fmt.Sprintf("message of %d bytes", e.size) }

// next returns the next message. ok is false if it is not completely received.
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

// size returns the size of the next message with its header. known is false if the length is not
// received yet.
func (w *wire) size() (n int, known bool) {
	if w.w-w.r < headerSize {
		return 0, false
	}
	return 1 + int(int32(binary.BigEndian.Uint32(w.buf[w.r+1:]))), true
}

// use makes the wire read into buf, and copies the unparsed bytes to it.
func (w *wire) use(buf []byte) {
	n := copy(buf, w.buf[w.r:w.w])
	w.buf, w.r, w.w = buf, 0, n
}

// change returns the LSN and the first bytes of the next message if it is WAL data. At least lead
// bytes of it must be received. ok is false for any other message.
func (w *wire) change() (start pglogrepl.LSN, data []byte, ok bool) {
	m := w.buf[w.r:w.w]
	if len(m) < headerSize+walHeaderSize || m[0] != kindCopyData || m[headerSize] != 'w' {
		return 0, nil, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(m[headerSize+1:])), m[headerSize+walHeaderSize:], true
}

// skip makes next discard the next message, of the given size, as it arrives.
func (w *wire) skip(size int) { w.skipping = size }

// skipped discards the received part of a message to skip, and reports whether that was all.
func (w *wire) skipped() bool {
	n := min(w.skipping, w.w-w.r)
	w.r += n
	w.skipping -= n
	return w.skipping == 0
}

// read receives at least one byte. If buf is full, it first moves the unparsed bytes to the
// start, which overwrites messages that next has returned.
func (w *wire) read() error {
	if w.w == len(w.buf) {
		w.use(w.buf)
	}
	n, err := w.conn.Read(w.buf[w.w:])
	w.w += n
	w.filled = w.w == len(w.buf)
	if n > 0 {
		return nil // the next read returns the error again
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
