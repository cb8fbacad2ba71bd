package decoder

import (
	"encoding/binary"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// decodeLimit is the highest accepted ratio. The measured ratio is 2.5.
const decodeLimit = 4

// TestGate compares two costs: decoding a row, and copying it and reading its lengths unchecked.
func TestGate(t *testing.T) {
	d := benchDecoder(t)
	var row []byte
	for _, m := range benchMessages() {
		if m.name == "Insert" {
			row = m.data
		}
	}
	dst := make([]byte, len(row))
	ratio.Gate(t, decodeLimit,
		func() {
			if _, err := d.Decode(0, row); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			copy(dst, row)
			if end := walk(dst); end != len(dst) {
				t.Fatalf("a row of %d bytes ends at %d", len(dst), end)
			}
		})
}

// walk returns the offset at which the row of an Insert ends.
func walk(m []byte) int {
	const columns = 1 + 4 + 1 // type, OID, 'N'
	end := columns + 2
	for range binary.BigEndian.Uint16(m[columns:]) {
		kind := Kind(m[end])
		if end++; kind == Text {
			end += 4 + int(binary.BigEndian.Uint32(m[end:]))
		}
	}
	return end
}
