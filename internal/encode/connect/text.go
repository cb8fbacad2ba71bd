package connect

import (
	"bytes"
	"unicode/utf8"
)

// appendJSONString appends text as Jackson writes a string to UTF-8 bytes: quotes, backslashes
// and control characters are escaped, the latter in upper-case hexadecimal; characters beyond U+FFFF
// become a pair of escaped surrogates. All others are unchanged, including <, >, &, / and U+2028.
func appendJSONString(dst, text []byte) []byte { return appendJackson(dst, text, 0xf0) }

// appendJackson appends text as a JSON string. It writes escaped surrogates for characters whose
// first UTF-8 byte is at least surrogates; Jackson writes none when it writes to text rather than
// bytes, as for hstore.
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

// quote appends the style's quotation mark, if it has one, for a string that needs no escaping.
func (s style) quote(dst []byte) []byte {
	if s == plain || s == java {
		return dst
	}
	return append(dst, '"')
}
