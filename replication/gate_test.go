package replication

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// cutLimit is the highest accepted ratio. The measured ratio is 1.5 on an Intel Xeon, and 2.6 on an AMD EPYC.
const cutLimit = 4

// TestGate compares two costs: parsing received bytes, and stepping from message to message.
func TestGate(t *testing.T) {
	var received []byte
	for range 100 {
		received = append(received, walData(0x100, "B"+strings.Repeat("x", 20))...)
		for range 10 {
			received = append(received, walData(0x100, "I"+strings.Repeat("x", 480))...)
		}
		received = append(received, commit(0x100, 0x100)...)
	}
	p := newPool()
	r := &run{Stream: &Stream{wire: wire{max: 1 << 20, buf: received}}, batch: <-p.free}
	var bodies [][]byte
	ratio.Gate(t, cutLimit,
		func() {
			r.batch.reset()
			r.wire.r, r.wire.w = 0, len(received)
			if more, err := r.cut(); more || err != nil || len(r.batch.Messages) != 1200 {
				t.Fatal(len(r.batch.Messages), more, err)
			}
		},
		func() {
			bodies = bodies[:0]
			for rest := received; len(rest) > 0; {
				size := 1 + binary.BigEndian.Uint32(rest[1:])
				bodies = append(bodies, rest[headerSize+walHeaderSize:size])
				rest = rest[size:]
			}
		})
}
