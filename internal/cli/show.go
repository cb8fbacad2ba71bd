package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	shortValue = 400  // bytes of a value in a list
	shownValue = 4096 // bytes of a value in a detailed view
)

// writeRecord prints a record, with at most the given number of bytes of its value.
func writeRecord(w io.Writer, rec *sink.Record, most int) {
	topic := rec.Topic
	if rec.Partition != sink.AnyPartition {
		topic += fmt.Sprintf(", partition %d", rec.Partition)
	}
	fmt.Fprintf(w, "  topic   %s\n  key     %s\n  value   %s\n", topic, visible(rec.Key), visibleUpTo(rec.Value, most))
	for _, h := range rec.Headers {
		fmt.Fprintf(w, "  header  %s: %s\n", oneLine(h.Key), visible(h.Value))
	}
}

// visible returns b for display, with its size: text as it is, quoted if it has control characters or outer blanks,
// anything else in hexadecimal.
func visible(b []byte) string { return visibleUpTo(b, shortValue) }

// visibleUpTo is visible for at most the given number of bytes.
func visibleUpTo(b []byte, most int) string {
	switch {
	case b == nil:
		return "null"
	case len(b) == 0:
		return "empty"
	}
	shown, more := b, ""
	if len(b) > most {
		for shown = b[:most]; len(shown) > most-utf8.UTFMax && !utf8.Valid(shown); {
			shown = shown[:len(shown)-1]
		}
		more = "…"
	}
	text := string(shown) + more
	switch {
	case !utf8.Valid(shown):
		text = fmt.Sprintf("0x%x%s", shown, more)
	case strings.ContainsFunc(text, unicode.IsControl), strings.TrimSpace(text) != text:
		text = strconv.Quote(text)
	}
	return fmt.Sprintf("%s (%d bytes)", text, len(b))
}

// at formats a time.
func at(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// oneLine returns external text for display in a line: quoted if it has control characters.
func oneLine(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

func entries(headers []sink.Header) []headerEntry {
	var all []headerEntry
	for _, h := range headers {
		all = append(all, headerEntry{Name: h.Key, Value: h.Value})
	}
	return all
}

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// A headerEntry is a header, or a column, as JSON.
type headerEntry struct {
	Name  string   `json:"name"`
	Value jsonText `json:"value"`
}

// A jsonText is bytes that are usually text.
type jsonText []byte

// MarshalJSON writes a string, {"base64": …} if the bytes are not UTF-8, and null for nil.
func (t jsonText) MarshalJSON() ([]byte, error) {
	switch {
	case t == nil:
		return []byte("null"), nil
	case utf8.Valid(t):
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": t})
}
