package connect

import (
	"bytes"
	"errors"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

var (
	errNotArray   = errors.New("not an array")
	errNested     = errors.New("an array of arrays: Debezium writes a memory address, or nulls")
	errNestedType = errors.New("an array of arrays has no schema in Connect")
	errArrayDate  = errors.New("a date in an array, infinite or before Christ: Debezium writes another")
	errArrayTime  = errors.New("a time in an array: Debezium truncates it to milliseconds, and 24:00 to 00:00")
	errArrayBits  = errors.New("bits in an array: Debezium cannot write them")
	errElement    = errors.New("an element that is NULL: Debezium's schema forbids it")
)

// An arrayReader parses the output of array_out.
type arrayReader struct {
	text []byte
	err  error
}

// open moves to the first brace. It skips the bounds in front of it, as in [2:3]={1,2}.
func (r *arrayReader) open() {
	if len(r.text) > 0 && r.text[0] == '[' {
		_, r.text, _ = bytes.Cut(r.text, []byte("="))
	}
	r.expect('{')
}

func (r *arrayReader) expect(c byte) {
	if len(r.text) == 0 || r.text[0] != c {
		r.err = errNotArray
		r.text = nil
		return
	}
	r.text = r.text[1:]
}

func (r *arrayReader) peek() byte {
	if len(r.text) == 0 {
		return 0
	}
	return r.text[0]
}

// element reads one element that is not an array. It reports null for an unquoted NULL.
func (r *arrayReader) element() (text []byte, null bool) {
	if r.peek() == '"' {
		text, rest, ok := unquote(r.text)
		if !ok {
			r.err, rest = errNotArray, nil
		}
		r.text = rest
		return text, false
	}
	end := bytes.IndexAny(r.text, ",}")
	if end <= 0 {
		r.err, r.text = errNotArray, nil
		return nil, false
	}
	text, r.text = r.text[:end], r.text[end:]
	if i := bytes.IndexByte(text, '\\'); i >= 0 {
		text, _, _ = unescape(text[:i], append(bytes.Clone(text[i:]), '"'))
	}
	return text, string(text) == "NULL"
}

// exactElement returns a codec that fails for values that Debezium damages only inside arrays,
// where the JDBC driver uses other Java types. Codecs of other types are returned as they are.
func exactElement(oid uint32, elem codec) codec {
	var damaged func(text []byte) error
	switch oid {
	case oidDate:
		damaged = func(text []byte) error {
			if i, _ := pgtime.ParseDate(text); i.Infinite != 0 || bytes.HasSuffix(text, []byte(" BC")) {
				return errArrayDate
			}
			return nil
		}
	case oidTime:
		damaged = func(text []byte) error {
			if i, err := pgtime.ParseTime(text, false); err != nil || i.Micros%1000 != 0 || i.Micros == pgtime.MicrosPerDay {
				return errArrayTime
			}
			return nil
		}
	case oidBit:
		damaged = func([]byte) error { return errArrayBits }
	default:
		return elem
	}
	inner := elem.append
	elem.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if err := damaged(text); err != nil {
			return nil, err
		}
		return inner(dst, s, text)
	}
	return elem
}

// arrayCodec returns the codec of arrays whose elements elem converts.
func arrayCodec(elem codec, m modes) codec {
	if !elem.required {
		elem.schema.optional = true
	}
	c := codec{schema: schema{kind: "array", items: &elem.schema}}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		r := arrayReader{text: text}
		r.open()
		dst = appendArray(dst, s, &r, elem, m, 0)
		if r.err == nil && len(r.text) > 0 {
			r.err = errNotArray
		}
		return dst, r.err
	}
	return c
}

// appendArray appends the array whose opening brace has been read.
func appendArray(dst []byte, s style, r *arrayReader, elem codec, m modes, depth int) []byte {
	comma := ","
	if s == java {
		comma = ", "
	}
	dst = append(dst, '[')
	for first := true; r.err == nil && r.peek() != '}'; first = false {
		if !first {
			r.expect(',')
			dst = append(dst, comma...)
		}
		if r.peek() != '{' {
			dst = appendElement(dst, s, r, elem, m)
			continue
		}
		switch r.expect('{'); {
		case m.Exact:
			r.err = errNested
		case s == jsonTyped:
			r.err = errNestedType
		case depth > 5: // MAXDIM
			r.err = errNotArray
		default:
			dst = appendArray(dst, s, r, elem, m, depth+1)
		}
	}
	if r.err == nil {
		r.expect('}')
	}
	return append(dst, ']')
}

func appendElement(dst []byte, s style, r *arrayReader, elem codec, m modes) []byte {
	text, null := r.element()
	if r.err != nil {
		return dst
	}
	if null {
		if elem.required && m.Exact {
			r.err = errElement
		}
		return append(dst, "null"...)
	}
	if s == plain {
		s = nested
	}
	out, err := elem.append(dst, s, text)
	if err != nil {
		r.err = err
		return dst
	}
	return out
}
