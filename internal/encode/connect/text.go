package connect

import (
	"bytes"
	"unicode/utf8"
)

// appendJSONString appends text as Jackson writes a string to UTF-8 bytes: quotes, backslashes
// and controls are escaped, the latter in upper-case hexadecimal, and what lies beyond U+FFFF is
// a pair of escaped surrogates. Everything else stays, <, >, &, / and U+2028 included.
func appendJSONString(dst, text []byte) []byte { return appendJackson(dst, text, 0xf0) }

// appendJackson escapes as said there, and pairs of surrogates for UTF-8 that begins with
// surrogates or more; writing to text, as it does for hstore, Jackson makes none.
func appendJackson(dst, text []byte, surrogates byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c < ' ' || c == '"' || c == '\\':
			dst = append(dst, text[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
		case c < surrogates:
			i++
		default:
			r, n := utf8.DecodeRune(text[i:])
			if n > 1 {
				dst = append(dst, text[start:i]...)
				r -= 0x10000
				dst = appendUnicodeEscape(dst, uint16(0xd800+r>>10))
				dst = appendUnicodeEscape(dst, uint16(0xdc00+r&0x3ff))
				start = i + n
			}
			i += n
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	default:
		return appendUnicodeEscape(dst, uint16(c))
	}
}

func appendUnicodeEscape(dst []byte, unit uint16) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '\\', 'u', digits[unit>>12], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
}

// appendSimpleString appends text as Connect's Values writes a string inside a list, a map or a
// struct: only quotes and backslashes are escaped.
func appendSimpleString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for {
		i := bytes.IndexAny(text, `"\`)
		if i < 0 {
			break
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, '\\', text[i])
		text = text[i+1:]
	}
	dst = append(dst, text...)
	return append(dst, '"')
}

// appendString appends a java.lang.String in the given style.
func appendString(dst []byte, s style, text []byte) []byte {
	switch s {
	case nested:
		return appendSimpleString(dst, text)
	case jsonValue, jsonTyped:
		return appendJSONString(dst, text)
	case jsonText:
		return appendJackson(dst, text, 0xff)
	case plain, java:
	}
	return append(dst, text...)
}

// quote appends the mark before and after a string that needs no escape, if the style has one.
func (s style) quote(dst []byte) []byte {
	if s == plain || s == java {
		return dst
	}
	return append(dst, '"')
}
