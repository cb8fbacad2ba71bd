package rabbitmq

import (
	"bytes"
	"net"
	"sync"
)

// wireBuffer is how many bytes a corked wire holds back.
const wireBuffer = 64 << 10

// A wire is the network connection below the client library, which writes each frame at once. While it is corked, the wire
// collects them.
type wire struct {
	net.Conn

	mu     sync.Mutex // held during writes
	corked bool
	buf    []byte

	readMu sync.Mutex
	first  []byte // what the first Read has returned
	ended  error  // of Read
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.corked {
		return w.Conn.Write(b)
	}
	if len(w.buf)+len(b) > wireBuffer {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if len(b) > wireBuffer {
		return w.Conn.Write(b)
	}
	w.buf = append(w.buf, b...)
	return len(b), nil
}

func (w *wire) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// cork makes writes collect until uncork.
func (w *wire) cork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = true
}

// uncork writes what was collected. After an error, the connection is closed, so that nothing is sent behind the gap.
func (w *wire) uncork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	if w.flush() != nil {
		_ = w.Close()
	}
}

// Read implements net.Conn. When reading ends, for example because the broker sends no heartbeat, it closes the
// connection: otherwise the library would wait for a write that the broker does not take.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.readMu.Lock()
	defer w.readMu.Unlock()
	if w.first == nil && n > 0 {
		w.first = bytes.Clone(b[:min(n, 2)])
	}
	if err != nil && w.ended == nil {
		w.ended = err
		_ = w.Close()
	}
	return n, err
}

// heard returns the first bytes that the broker has sent, and the error that ended reading.
func (w *wire) heard() ([]byte, error) {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	return w.first, w.ended
}
