package kafka

import (
	"encoding/binary"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// frameLimit: 2 was measured.
const frameLimit = 3

// TestGate compares writing a record's frame and reading it again with copying its bytes
// behind their lengths.
func TestGate(t *testing.T) {
	rec := benchRecord(200, 2)
	rec.Key = benchKeys()[0]
	var frame, dst []byte
	put := func(b []byte) { dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...) }
	ratio.Gate(t, frameLimit,
		func() {
			s := shapeOf(&rec)
			n := s.frameSize()
			if cap(frame) < n {
				frame = make([]byte, n)
			}
			putFrame(frame[:n], &rec, 1)
			if f, _ := readFrame(frame[:n]); f.headers != len(rec.Headers) {
				t.Fatal("another frame")
			}
		},
		func() {
			dst = dst[:0]
			put(rec.Key)
			put(rec.Value)
			for i := range rec.Headers {
				put([]byte(rec.Headers[i].Key))
				put(rec.Headers[i].Value)
			}
		})
}
