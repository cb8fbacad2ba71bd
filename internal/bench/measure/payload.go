package measure

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strconv"
)

// The text of every payload is
//
//	{"k": 17, "n": 4, "kind": "order", "status": "placed", "content": "9f…"}
//
// which is the text format of jsonb: members by the length of their name, one space after colon and
// comma (https://www.postgresql.org/docs/current/datatype-json.html). k is the key, n is the number of
// the event for that key, and content is the piece of [dust] after that of the previous row. So the
// consumer knows every byte of every payload, and compares memory instead of computing checksums.
const (
	payloadBeforeKey    = `{"k": `
	payloadBeforeNumber = `, "n": `
	payloadBeforeText   = `, "kind": "order", "status": "placed", "content": "`
	payloadEnd          = `"}`

	payloadFixed = len(payloadBeforeKey) + len(payloadBeforeNumber) + len(payloadBeforeText) + len(payloadEnd)
)

// MinPayloadBytes leaves room for some content with the largest numbers.
const MinPayloadBytes = 120

const (
	maxPayloadBytes = 1 << 20
	dustBytes       = 4 << 20 // far more than a batch holds: compression must not find repeats

	// The content of row i begins at byte i * (size of a payload / 2) % offsets of the dust.
	offsets = dustBytes - maxPayloadBytes/2
)

// dust has random bytes and their hexadecimal digits, from which contents are cut. Like text with a small
// alphabet, it can be compressed to half of its size.
type dust struct {
	raw []byte
	hex []byte
}

func newDust() *dust {
	raw := make([]byte, dustBytes)
	_, _ = rand.Read(raw) // never fails
	return dustOf(raw)
}

func dustOf(raw []byte) *dust { return &dust{raw: raw, hex: hex.AppendEncode(nil, raw)} }

// content returns the content of a row, at most room digits. The caller must not change it.
func (p plan) content(row, room int) []byte {
	at := 2 * (row * (p.payload / 2) % offsets)
	return p.hex[at : at+room&^1]
}

// room returns the number of content bytes that the size of the payload leaves. If it is odd, the content is
// one byte shorter, because hexadecimal digits come in pairs.
func (p plan) room(key, number int) int {
	return p.payload - payloadFixed - digits(key) - digits(number)
}

// appendPayload appends the payload of row.
func (p plan) appendPayload(dst []byte, row int) []byte {
	key, number := p.key(row), p.number(row)
	dst = append(dst, payloadBeforeKey...)
	dst = strconv.AppendInt(dst, int64(key), 10)
	dst = append(dst, payloadBeforeNumber...)
	dst = strconv.AppendInt(dst, int64(number), 10)
	dst = append(dst, payloadBeforeText...)
	dst = append(dst, p.content(row, p.room(key, number))...)
	return append(dst, payloadEnd...)
}

// readPayload returns the event that has exactly the payload value. ok is false if p has none.
func (p plan) readPayload(value []byte) (key, number int, ok bool) {
	rest, begins := bytes.CutPrefix(value, []byte(payloadBeforeKey))
	key, rest, isNumber := cutNumber(rest)
	if !begins || !isNumber || key >= p.keys {
		return 0, 0, false
	}
	rest, goesOn := bytes.CutPrefix(rest, []byte(payloadBeforeNumber))
	number, rest, isNumber = cutNumber(rest)
	if !goesOn || !isNumber || p.row(key, number) >= p.rows {
		return 0, 0, false
	}
	rest, goesOn = bytes.CutPrefix(rest, []byte(payloadBeforeText))
	rest, ends := bytes.CutSuffix(rest, []byte(payloadEnd))
	want := p.content(p.row(key, number), p.room(key, number))
	return key, number, goesOn && ends && bytes.Equal(rest, want)
}

// maxDigits limits numbers, so that their sums do not overflow.
const maxDigits = 10

// cutNumber parses the decimal number at the start of b, which must have no leading zeros.
func cutNumber(b []byte) (n int, rest []byte, ok bool) {
	i := 0
	for i < len(b) && i < maxDigits && b[i]-'0' <= 9 {
		n = 10*n + int(b[i]-'0')
		i++
	}
	return n, b[i:], i > 0 && (b[0] != '0' || i == 1)
}

// digits returns the number of decimal digits of n, which is not negative.
func digits(n int) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}
