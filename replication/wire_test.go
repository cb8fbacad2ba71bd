package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pieceConn returns its data in pieces, with an expired deadline between them.
type pieceConn struct {
	net.Conn
	data   []byte
	pieces []byte // sizes, used repeatedly
	n      int
}

func (c *pieceConn) Read(p []byte) (int, error) {
	c.n++
	switch {
	case len(c.data) == 0:
		return 0, io.EOF
	case c.n%2 == 0:
		return 0, os.ErrDeadlineExceeded
	}
	size := 1
	if len(c.pieces) > 0 {
		size = 1 + int(c.pieces[c.n/2%len(c.pieces)])
	}
	n := copy(p[:min(len(p), size)], c.data)
	c.data = c.data[n:]
	return n, nil
}

// FuzzWire parses any bytes in any pieces, and compares the result with parsing them at once.
func FuzzWire(f *testing.F) {
	f.Add(walData(1, "I1"), []byte{0}, 32)
	f.Add(append(keepalive(1, true), walData(2, "a longer row than the buffer has room for, so to say")...), []byte{3, 200}, 64)
	f.Add(append(walData(1, string(make([]byte, 5000))), walData(2, "I2")...), []byte{0, 90, 7}, 64)
	f.Add([]byte{'d', 0, 0, 0, 4, 'd', 0xFF, 0xFF, 0xFF, 0xFF}, []byte{9}, 40)
	f.Fuzz(func(t *testing.T, data, pieces []byte, size int) {
		if size < headerSize+walHeaderSize || size > 1<<12 {
			return
		}
		w := &wire{conn: &pieceConn{data: data, pieces: pieces}, max: 1 << 10, lead: headerSize + walHeaderSize, buf: make([]byte, size)}
		if diff := cmp.Diff(cutAtOnce(data, w.max), cutInPieces(t, w)); diff != "" {
			t.Errorf("(-at once +in pieces):\n%s", diff)
		}
	})
}

func cutInPieces(t *testing.T, w *wire) []string {
	t.Helper()
	var all []string
	for {
		kind, body, ok, err := w.next()
		large, isLarge := errors.AsType[*largeError](err)
		switch {
		case ok:
			all = append(all, fmt.Sprintf("%c %x", kind, body))
		case isLarge && large.size > w.max:
			all = append(all, err.Error())
			w.skip(large.size)
		case isLarge:
			w.use(make([]byte, large.size))
		case err != nil:
			return append(all, "error")
		default:
			switch err := w.read(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
			case errors.Is(err, io.ErrUnexpectedEOF):
				return all
			case err != nil:
				t.Fatal(err)
			}
		}
	}
}

// cutAtOnce parses the data as if it were received at once.
func cutAtOnce(data []byte, limit int) []string {
	var all []string
	for r := bytes.NewReader(data); r.Len() >= headerSize; {
		var header struct {
			Kind   byte
			Length int32
		}
		if err := binary.Read(r, binary.BigEndian, &header); err != nil {
			panic(err)
		}
		n := int(header.Length) - 4
		switch {
		case n < 0:
			return append(all, "error")
		case n+headerSize > limit && r.Len() >= walHeaderSize:
			all = append(all, (&largeError{n + headerSize}).Error())
			_, _ = r.Seek(int64(n), io.SeekCurrent)
			continue
		case r.Len() < n:
			return all
		}
		body := make([]byte, n)
		_, _ = io.ReadFull(r, body)
		all = append(all, fmt.Sprintf("%c %x", header.Kind, body))
	}
	return all
}
