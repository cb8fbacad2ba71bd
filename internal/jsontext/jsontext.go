// Package jsontext limits the nesting of untrusted JSON. Its parsers are recursive, and a stack overflow ends
// the process.
package jsontext

import "github.com/tidwall/gjson"

// MaxDepth is the maximum nesting of objects and arrays. Jackson, which Debezium uses, has the same limit:
// https://javadoc.io/doc/com.fasterxml.jackson.core/jackson-core/latest/index.html
// (StreamReadConstraints).
const MaxDepth = 1000

// Valid reports whether text is JSON with a nesting of at most [MaxDepth].
func Valid(text []byte) bool { return !TooDeep(text) && gjson.ValidBytes(text) }

// TooDeep reports whether text has a nesting of more than [MaxDepth]. text may be invalid JSON.
func TooDeep(text []byte) bool {
	if len(text) <= MaxDepth {
		return false
	}
	depth, _ := Measure(text)
	return depth > MaxDepth
}

// Measure returns the nesting of text (1 for an object of numbers) and an upper bound for its number of
// values. It stops at a nesting of more than [MaxDepth]. If text is not valid JSON, a parser that stops at
// the first error does not get deeper than the result.
func Measure(text []byte) (deepest, values int) {
	depth := 0
	inString := false
	values = 1
	for i := 0; i < len(text) && deepest <= MaxDepth; i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			values++
			deepest = max(deepest, depth)
		case c == ',':
			values++
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest, values
}
