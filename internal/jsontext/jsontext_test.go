package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func nested(n int) string { return strings.Repeat(`[`, n) + strings.Repeat("]", n) }

func TestValid(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want bool
	}{
		"empty":                   {"", false},
		"a number":                {"1", true},
		"an object":               {`{"a":[1,{"b":null}]}`, true},
		"no JSON":                 {`{"a":}`, false},
		"at the limit":            {nested(MaxDepth), true},
		"objects at the limit":    {strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth), true},
		"beyond it":               {nested(MaxDepth + 1), false},
		"objects beyond it":       {strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1), false},
		"many beside each other":  {"[" + strings.Repeat("[],", 10*MaxDepth) + "{}]", true},
		"brackets in a string":    {`"` + strings.Repeat("[", 10*MaxDepth) + `"`, true},
		"behind an escaped quote": {`"\"` + strings.Repeat("[", 10*MaxDepth) + `\\"`, true},
		"64 MiB of brackets":      {strings.Repeat("[", 64<<20), false},
		"64 MiB of objects":       {strings.Repeat(`{"":`, 16<<20), false},
		"64 MiB that end":         {nested(32 << 20), false},
		"behind what closes more": {"]]]" + strings.Repeat("[", 64<<20), false},
	} {
		if got := Valid([]byte(tc.text)); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// FuzzMeasure compares with a parser that has a stack of its own. It counts scalars, including member names.
func FuzzMeasure(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"]}"}]}`, `["\"[",[]]`, `[[[]]`, `"\\"[`, nested(1200), "1e999"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			_ = Valid(text)
			return
		}
		depth, deepest, leaves := 0, 0, 0
		tokens := json.NewDecoder(bytes.NewReader(text))
		tokens.UseNumber() // JSON has numbers that no float64 has
		for {
			token, err := tokens.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
				deepest = max(deepest, depth)
			case json.Delim('}'), json.Delim(']'):
				depth--
			default:
				leaves++
			}
		}
		got, values := Measure(text)
		if got != min(deepest, MaxDepth+1) || got <= MaxDepth && 2*values < leaves {
			t.Errorf("Measure(%q) = %d, %d, want %d, half of %d", text, got, values, deepest, leaves)
		}
		if Valid(text) != (deepest <= MaxDepth) {
			t.Errorf("Valid(%q) = %t", text, Valid(text))
		}
	})
}
