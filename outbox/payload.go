package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// payloadBytes returns the bytes of a payload: its own, or its JSON. They are nil if it is nil.
func payloadBytes(payload any) ([]byte, *EventError) {
	switch p := payload.(type) {
	case nil:
		return nil, nil
	case []byte:
		return p, nil
	case json.RawMessage:
		return p, nil
	case string: // never as a JSON string: most strings here are JSON already
		return []byte(p), nil
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, &EventError{Field: "Payload", Reason: fmt.Sprintf("of type %T cannot be marshaled: %v", payload, err), Err: err}
	}
	return text, nil
}

// payloadProblem returns why a column of type t cannot hold p, or the empty string.
func payloadProblem(p []byte, t PayloadType) string {
	switch t {
	case Bytea:
		return ""
	case Text:
		return textProblem(string(p))
	case JSON, JSONB:
		if !json.Valid(p) {
			return notJSON
		}
		if !utf8.Valid(p) {
			return "is not UTF-8"
		}
		if t == JSONB {
			return escapeProblem(p)
		}
	}
	return ""
}

// notJSON is a reason of payloadProblem.
const notJSON = "is not valid JSON"

// escapeProblem finds escapes that JSON allows and jsonb rejects, because they do not represent text
// (https://www.postgresql.org/docs/current/datatype-json.html). p is valid JSON.
func escapeProblem(p []byte) string {
	high := -1 // where the low half of a surrogate pair must start
	for i := 0; i < len(p); i++ {
		if p[i] != '\\' {
			continue
		}
		i++ // the escaped character
		var unit rune
		if p[i] == 'u' {
			unit = hex4(p[i+1 : i+5])
		}
		low := 0xDC00 <= unit && unit < 0xE000
		switch {
		case p[i] == 'u' && unit == 0:
			return `contains the escape \u0000, which jsonb rejects`
		case low != (high == i-1), high >= 0 && high != i-1:
			return "contains half of a surrogate pair, which jsonb rejects"
		}
		high = -1
		if 0xD800 <= unit && unit < 0xDC00 {
			high = i + 5
		}
	}
	if high >= 0 {
		return "contains half of a surrogate pair, which jsonb rejects"
	}
	return ""
}

// hex4 returns the value of four hexadecimal digits.
func hex4(digits []byte) rune {
	var v rune
	for _, c := range digits {
		v <<= 4
		switch {
		case c <= '9':
			v |= rune(c - '0')
		default:
			v |= rune(c|0x20-'a') + 10
		}
	}
	return v
}

// The limits of numeric, and so of a number in jsonb
// (https://www.postgresql.org/docs/current/datatype-numeric.html).
const (
	maxWholeDigits    = 131_072
	maxFractionDigits = 16_383
)

// printedSize returns how many bytes jsonb prints for p, which is valid JSON, or a few more: jsonb
// prints a blank after every comma and colon, and numbers without exponents. ok is false if jsonb
// cannot hold one of the numbers.
func printedSize(p []byte) (size int, ok bool) {
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case c == '"':
			n := stringLength(p[i:])
			size += n
			i += n
		case c == '-' || '0' <= c && c <= '9':
			n := len(p[i:])
			if end := bytes.IndexAny(p[i:], ",]} \t\r\n"); end >= 0 {
				n = end
			}
			digits, ok := numberSize(p[i : i+n])
			if !ok {
				return 0, false
			}
			size += digits
			i += n
		default:
			i++
			switch c {
			case ' ', '\t', '\r', '\n':
			case ',', ':':
				size += 2
			default:
				size++
			}
		}
	}
	return size, true
}

// stringLength returns the length of the JSON string at the start of p.
func stringLength(p []byte) int {
	for i := 1; ; i++ {
		switch p[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// numberSize returns how many bytes numeric prints for a JSON number, or a few more.
func numberSize(number []byte) (size int, ok bool) {
	mantissa, exponent := number, 0
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		mantissa = number[:e]
		var err error
		if exponent, err = strconv.Atoi(string(number[e+1:])); err != nil {
			return 0, false
		}
	}
	digits, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	wholeDigits, fractionDigits := max(len(whole)+exponent, 1), max(len(fraction)-exponent, 0)
	if wholeDigits > maxWholeDigits || fractionDigits > maxFractionDigits {
		return 0, false
	}
	size = wholeDigits + fractionDigits
	if negative {
		size++
	}
	if fractionDigits > 0 {
		size++ // the point
	}
	return size, true
}
