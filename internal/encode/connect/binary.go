package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
)

var (
	errNotBytes = errors.New("not a bytea in hex format")
	errNotBits  = errors.New("not a bit string")
	errAddress  = errors.New("bytes with StringConverter: Debezium writes a memory address in their place")
)

// appendBytea decodes a bytea in hex format (bytea_output=hex) and appends its bytes.
func appendBytea(dst, text []byte) ([]byte, error) {
	digits, ok := bytes.CutPrefix(text, []byte(`\x`))
	if !ok {
		return nil, errNotBytes
	}
	out, err := hex.AppendDecode(dst, digits)
	if err != nil {
		return nil, errNotBytes
	}
	return out, nil
}

// byteaCodec returns the codec of bytea: bytes, or text as binary.handling.mode says.
func byteaCodec(m modes) codec {
	encoding := base64.StdEncoding
	if m.Binary == "base64-url-safe" {
		encoding = base64.URLEncoding
	}
	if m.Binary == "hex" {
		return isoCodec("", func(dst, text []byte) ([]byte, error) {
			digits, ok := bytes.CutPrefix(text, []byte(`\x`))
			if !ok || len(digits)%2 != 0 || len(bytes.Trim(digits, "0123456789abcdef")) > 0 {
				return nil, errNotBytes
			}
			return append(dst, digits...), nil
		})
	}
	if m.BinaryIsText() {
		return isoCodec("", func(dst, text []byte) ([]byte, error) { return appendBase64(dst, encoding, text) })
	}
	c := codec{schema: schema{kind: "bytes"}}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if s == java {
			if m.Exact {
				return nil, errAddress
			}
			return appendBytea(dst, text)
		}
		dst, err := appendBase64(s.quote(dst), encoding, text)
		return s.quote(dst), err
	}
	return c
}

// appendBase64 decodes into the far end of dst, so that nothing is allocated.
func appendBase64(dst []byte, encoding *base64.Encoding, text []byte) ([]byte, error) {
	if len(text) < 2 {
		return nil, errNotBytes
	}
	size := (len(text) - 2) / 2
	encoded := encoding.EncodedLen(size)
	dst = slices.Grow(dst, encoded+size)
	at := len(dst)
	raw, err := appendBytea(dst[at+encoded:at+encoded], text)
	if err != nil {
		return nil, err
	}
	encoding.Encode(dst[at:at+encoded], raw)
	return dst[:at+encoded], nil
}

// bitsCodec returns the codec of bit and varbit. bit(1) is a boolean; longer strings are bytes, the
// least significant byte first, without leading zero bytes at the significant end.
func bitsCodec(mod int32, varying bool, m modes) codec {
	length := int(mod)
	if mod < 0 {
		length = math.MaxInt32
		if !varying {
			length = 1
		}
	}
	if length == 1 {
		return boolCodec('1', '0')
	}
	c := codec{schema: schema{
		kind: "bytes", name: "io.debezium.data.Bits", version: 1,
		parameters: []parameter{{"length", strconv.Itoa(length)}},
	}}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if s == java && m.Exact {
			return nil, errAddress
		}
		var buf [32]byte
		packed, err := packBits(buf[:0], text)
		if err != nil {
			return nil, err
		}
		return s.quote(base64.StdEncoding.AppendEncode(s.quote(dst), packed)), nil
	}
	return c
}

func packBits(dst, text []byte) ([]byte, error) {
	text = bytes.TrimLeft(text, "0")
	for i := range text {
		if i%8 == 0 {
			dst = append(dst, 0)
		}
		switch text[len(text)-1-i] {
		case '1':
			dst[i/8] |= 1 << (i % 8)
		case '0':
		default:
			return nil, errNotBits
		}
	}
	return dst, nil
}
