// Package jsontext guards the parsers of JSON that anybody may have written. They recurse, and a
// goroutine whose stack overflows ends the process.
package jsontext

import "github.com/tidwall/gjson"

// MaxDepth is how many objects and arrays may be open at once. Jackson, with which Debezium reads JSON,
// has the same limit: https://javadoc.io/doc/com.fasterxml.jackson.core/jackson-core/latest/index.html
// (StreamReadConstraints).
const MaxDepth = 1000

// Valid reports whether text is JSON that is nested at most [MaxDepth] deep.
func Valid(text []byte) bool { return !TooDeep(text) && gjson.ValidBytes(text) }

// TooDeep reports whether text, if it is JSON, is nested more than [MaxDepth] deep.
func TooDeep(text []byte) bool {
	if len(text) <= MaxDepth {
		return false
	}
	depth, _ := Measure(text)
	return depth > MaxDepth
}

// Measure returns how deep text, if it is JSON, is nested, 1 for an object of numbers, and at least as
// many values as it has. It stops behind [MaxDepth]. Of other text, no parser that stops at the first
// error gets deeper.
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
