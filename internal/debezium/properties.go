package debezium

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A pair is a key and its value in a file.
type pair struct {
	key, value string
	line       int // in the text; 0: not known
}

// parseProperties parses Java's properties format. If a key is repeated, the last value counts.
// https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html#load(java.io.Reader)
func parseProperties(text string) ([]pair, error) {
	var out []pair
	at := make(map[string]int)
	lines, numbers := logicalLines(text)
	for n, line := range lines {
		end := 0
		for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(line))
		rest := strings.TrimLeft(line[end:], " \t\f")
		if rest != "" && (rest[0] == '=' || rest[0] == ':') {
			rest = strings.TrimLeft(rest[1:], " \t\f")
		}
		key, err := unescape(line[:end])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", numbers[n], err)
		}
		value, err := unescape(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s: %w", numbers[n], key, err)
		}
		if i, ok := at[key]; ok {
			out[i] = pair{key, value, numbers[n]}
			continue
		}
		at[key] = len(out)
		out = append(out, pair{key, value, numbers[n]})
	}
	return out, nil
}

// logicalLines returns the lines with keys, and their numbers in the text. It drops comments, and joins lines that end with
// a backslash.
func logicalLines(text string) (out []string, numbers []int) {
	open := false
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t\f")
		if !open && (line == "" || line[0] == '#' || line[0] == '!') {
			continue
		}
		slashes := len(line) - len(strings.TrimRight(line, `\`))
		continues := slashes%2 == 1
		if continues {
			line = line[:len(line)-1]
		}
		if open {
			out[len(out)-1] += line
		} else {
			out, numbers = append(out, line), append(numbers, n)
		}
		open = continues
	}
	return out, numbers
}

// unescape replaces the escapes of a key or value.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var units []uint16 // \u is UTF-16, in which a character may have two units
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			end := strings.IndexByte(s[i+1:], '\\')
			if end < 0 {
				end = len(s) - i - 1
			}
			units = append(units, utf16.Encode([]rune(s[i:i+1+end]))...)
			i += 1 + end
			continue
		}
		switch c := s[i+1]; c {
		case 'u':
			if i+6 > len(s) {
				return "", errors.New(`a \u is not followed by four hexadecimal digits`)
			}
			n, err := strconv.ParseUint(s[i+2:i+6], 16, 16)
			if err != nil {
				return "", errors.New(`a \u is not followed by four hexadecimal digits`)
			}
			units = append(units, uint16(n))
			i += 6
			continue
		case 't', 'n', 'r', 'f':
			units = append(units, uint16(strings.NewReplacer("t", "\t", "n", "\n", "r", "\r", "f", "\f").Replace(string(c))[0]))
			i += 2
			continue
		}
		i++ // the backslash; what it escapes is text
		size := 1
		for i+size < len(s) && s[i+size]&0xC0 == 0x80 {
			size++
		}
		units = append(units, utf16.Encode([]rune(s[i:i+size]))...)
		i += size
	}
	return string(utf16.Decode(units)), nil
}
