package connect

import (
	"errors"
	"slices"
	"unicode/utf8"
)

var errNotHStore = errors.New("not an hstore")

// A pair is a key and its value in an hstore. The slot is its index in the table of a Java HashMap.
type pair struct {
	key, value []byte
	null       bool
	slot       uint32
}

// parseHStore parses the output of hstore_out: "k"=>"v", "n"=>NULL.
func parseHStore(text []byte) ([]pair, error) {
	var pairs []pair
	for len(text) > 0 {
		var p pair
		var ok bool
		if p.key, text, ok = unquote(text); !ok || len(text) < 2 || text[0] != '=' || text[1] != '>' {
			return nil, errNotHStore
		}
		text = text[2:]
		if p.null = len(text) >= 4 && string(text[:4]) == "NULL"; p.null {
			text = text[4:]
		} else if p.value, text, ok = unquote(text); !ok {
			return nil, errNotHStore
		}
		pairs = append(pairs, p)
		if len(text) == 0 {
			break
		}
		if len(text) < 3 || text[0] != ',' || text[1] != ' ' {
			return nil, errNotHStore
		}
		text = text[2:]
	}
	return pairs, nil
}

// unquote reads a string between quotes, where a backslash escapes any character.
func unquote(text []byte) (s, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return text[1:i], text[i+1:], true
		case '\\':
			return unescape(text[1:i], text[i:])
		}
	}
	return nil, nil, false
}

func unescape(start, text []byte) (s, rest []byte, ok bool) {
	s = append([]byte(nil), start...)
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return s, text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return nil, nil, false
			}
		}
		s = append(s, text[i])
	}
	return nil, nil, false
}

// javaOrder sorts the pairs in the iteration order of a java.util.HashMap: by slot of a table whose
// size grows with the number of pairs and, within a slot, in the order of insertion, which is
// hstore's order.
func javaOrder(pairs []pair) {
	size := uint32(16)
	for uint64(len(pairs))*4 > uint64(size)*3 {
		size *= 2
	}
	for i := range pairs {
		h := javaHash(pairs[i].key)
		pairs[i].slot = (h ^ h>>16) & (size - 1)
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return int(a.slot) - int(b.slot) })
}

// javaHash computes Java's String.hashCode, which is defined over UTF-16 units.
func javaHash(text []byte) (h uint32) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		if r >= 0x10000 {
			r -= 0x10000
			h = h*31 + uint32(0xd800+r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = h*31 + uint32(r)
	}
	return h
}

// hstoreCodec returns the codec of hstore: the text of a JSON object, or a map.
func hstoreCodec(m modes) codec {
	if m.HStore == "map" {
		c := codec{schema: schema{kind: "map", items: &schema{kind: "string", optional: true}}}
		c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
			pairs, err := parseHStore(text)
			if err != nil {
				return nil, err
			}
			javaOrder(pairs)
			return appendPairs(dst, s, pairs), nil
		}
		return c
	}
	c := stringCodec("io.debezium.data.Json")
	c.same = false
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		pairs, err := parseHStore(text)
		if err != nil {
			return nil, err
		}
		javaOrder(pairs)
		if s == plain || s == java {
			return appendPairs(dst, jsonText, pairs), nil
		}
		var buf [256]byte
		return appendString(dst, s, appendPairs(buf[:0], jsonText, pairs)), nil
	}
	return c
}

func appendPairs(dst []byte, s style, pairs []pair) []byte {
	inner, assign, comma := s, ":", ","
	switch s {
	case plain:
		inner = nested
	case java:
		assign, comma = "=", ", "
	case nested, jsonValue, jsonTyped, jsonText:
	}
	dst = append(dst, '{')
	for i, p := range pairs {
		if i > 0 {
			dst = append(dst, comma...)
		}
		dst = append(appendString(dst, inner, p.key), assign...)
		if p.null {
			dst = append(dst, "null"...)
		} else {
			dst = appendString(dst, inner, p.value)
		}
	}
	return append(dst, '}')
}
