package connect

import (
	"bytes"
	"errors"
)

var (
	errNotBool    = errors.New("not a boolean")
	errNotInteger = errors.New("not an integer")
	errNullName   = errors.New("a value of type name: Debezium writes a null")
)

// integerCodec returns the codec of integers, whose text is the same in every style.
func integerCodec(kind string) codec {
	c := codec{schema: schema{kind: kind}, same: true, number: true}
	c.append = func(dst []byte, _ style, text []byte) ([]byte, error) {
		if !isInteger(text) {
			return nil, errNotInteger
		}
		return append(dst, text...), nil
	}
	return c
}

// isInteger reports whether text is an integer as Postgres prints it.
func isInteger(text []byte) bool {
	digits := bytes.TrimPrefix(text, []byte("-"))
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(digits) > 0 && (digits[0] != '0' || len(digits) == 1)
}

// boolCodec returns the codec of types that are printed as yes for true and no for false.
func boolCodec(yes, no byte) codec {
	return codec{schema: schema{kind: "boolean"}, append: func(dst []byte, _ style, text []byte) ([]byte, error) {
		switch {
		case len(text) == 1 && text[0] == yes:
			return append(dst, "true"...), nil
		case len(text) == 1 && text[0] == no:
			return append(dst, "false"...), nil
		}
		return nil, errNotBool
	}}
}

// nameCodec returns the codec of name, for which Debezium has a schema but writes no values.
func nameCodec(m modes) codec {
	c := stringCodec("")
	if m.Exact {
		c.same = false
		c.append = func([]byte, style, []byte) ([]byte, error) { return nil, errNullName }
	}
	return c
}
