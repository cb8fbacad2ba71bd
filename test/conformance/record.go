package conformance

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Record is a record as Kafka stores it. Nil bytes are null.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	AnyValue  bool // recorded only: the value is not compared
	Headers   []Header
	Timestamp time.Time // zero in a recording if it is the time at which the row was processed
}

// A Header is one header of a record.
type Header struct {
	Name     string
	Value    []byte
	AnyValue bool // recorded only: the value is not compared
}

// anyBytes is a placeholder for bytes that differ in each run.
const anyBytes = "*"

// A recordLine is a line of records.jsonl, with bytes as base64, anyBytes or null.
type recordLine struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
	Timestamp *int64       `json:"timestamp_ms"`
}

// UnmarshalJSON reads a line of records.jsonl.
func (r *Record) UnmarshalJSON(data []byte) error {
	var line recordLine
	if err := json.Unmarshal(data, &line); err != nil {
		return err
	}
	*r = Record{Topic: line.Topic, Partition: line.Partition, Offset: line.Offset}
	var err error
	if r.Key, _, err = recorded(line.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.Value, r.AnyValue, err = recorded(line.Value); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	if line.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*line.Timestamp)
	}
	for _, pair := range line.Headers {
		if pair[0] == nil {
			return fmt.Errorf("a header of the record at %s has no name", r.at())
		}
		h := Header{Name: *pair[0]}
		if h.Value, h.AnyValue, err = recorded(pair[1]); err != nil {
			return fmt.Errorf("header %s: %w", h.Name, err)
		}
		r.Headers = append(r.Headers, h)
	}
	return nil
}

// recorded decodes base64, null and "*".
func recorded(s *string) (data []byte, anything bool, err error) {
	if s == nil {
		return nil, false, nil
	}
	if *s == anyBytes {
		return nil, true, nil
	}
	data, err = base64.StdEncoding.DecodeString(*s)
	if data == nil {
		data = []byte{}
	}
	return data, false, err
}

// line returns the record as a line of records.jsonl.
func (r *Record) line() string {
	line := recordLine{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Key: record(r.Key, false), Value: record(r.Value, r.AnyValue), Headers: [][2]*string{},
	}
	for _, h := range r.Headers {
		line.Headers = append(line.Headers, [2]*string{&h.Name, record(h.Value, h.AnyValue)})
	}
	if !r.Timestamp.IsZero() {
		line.Timestamp = new(r.Timestamp.UnixMilli())
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // it only contains strings and numbers
	}
	return string(text)
}

// record is the inverse of recorded.
func record(b []byte, anything bool) *string {
	switch {
	case anything:
		return new(anyBytes)
	case b == nil:
		return nil
	default:
		return new(base64.StdEncoding.EncodeToString(b))
	}
}

func (r *Record) at() string { return fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset) }

// contextHeaders is the prefix of the headers that describe the connector, not the event.
const contextHeaders = "__debezium.context."

// withoutContext returns the records without the headers about the connector.
func withoutContext(records []Record) []Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].Headers = slices.DeleteFunc(slices.Clone(out[i].Headers), func(h Header) bool {
			return strings.HasPrefix(h.Name, contextHeaders) || h.Name == "__debezium.oldkey"
		})
	}
	return out
}

// A run is the time during which the program under test ran. If a timestamp was not recorded, the record's
// timestamp must be within this time.
type run struct{ began, ended time.Time }

// among returns the records of want whose topic, partition and offset also occur in got.
func among(want, got []Record) []Record {
	places := map[string]bool{}
	for _, r := range got {
		places[r.at()] = true
	}
	return slices.DeleteFunc(slices.Clone(want), func(r Record) bool { return !places[r.at()] })
}

// lasting returns the records as a recording has them: without timestamps from the run, and with a
// placeholder for the values of the headers in fresh.
func lasting(records []Record, run run, fresh ...string) []Record {
	out := slices.Clone(records)
	for i := range out {
		r := &out[i]
		if !r.Timestamp.Before(run.began.Truncate(time.Millisecond)) && !r.Timestamp.After(run.ended) {
			r.Timestamp = time.Time{}
		}
		r.Headers = slices.Clone(r.Headers)
		for j := range r.Headers {
			r.Headers[j].AnyValue = slices.Contains(fresh, r.Headers[j].Name)
		}
	}
	return out
}

// compare returns the differences between the written and the recorded records, one line for each. It
// sorts both slices.
func compare(want, got []Record, run run) []string {
	byPlace := func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	}
	slices.SortFunc(want, byPlace)
	slices.SortFunc(got, byPlace)
	var diffs []string
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && byPlace(want[0], got[0]) < 0:
			diffs = append(diffs, fmt.Sprintf("%s: no record, want key %s value %s", want[0].at(), show(want[0].Key), show(want[0].Value)))
			want = want[1:]
		case len(want) == 0 || byPlace(want[0], got[0]) > 0:
			diffs = append(diffs, fmt.Sprintf("%s: a record that was not recorded: key %s value %s", got[0].at(), show(got[0].Key), show(got[0].Value)))
			got = got[1:]
		default:
			diffs = append(diffs, compareRecord(&want[0], &got[0], run)...)
			want, got = want[1:], got[1:]
		}
	}
	return diffs
}

func compareRecord(want, got *Record, run run) (diffs []string) {
	at := got.at()
	differ := func(what, want, got string) {
		diffs = append(diffs, fmt.Sprintf("%s: %s is %s, want %s", at, what, got, want))
	}
	if !same(want.Key, got.Key) {
		differ("key", show(want.Key), show(got.Key))
	}
	if !want.AnyValue && !same(want.Value, got.Value) {
		differ("value", show(want.Value), show(got.Value))
	}
	if w, g := names(want.Headers), names(got.Headers); w != g {
		differ("list of headers", w, g)
	} else {
		for i, h := range want.Headers {
			if g := got.Headers[i].Value; !h.AnyValue && !same(h.Value, g) {
				differ("header "+h.Name, show(h.Value), show(g))
			}
		}
	}
	switch {
	case !want.Timestamp.IsZero():
		if !want.Timestamp.Equal(got.Timestamp) {
			differ("timestamp", want.Timestamp.UTC().String(), got.Timestamp.UTC().String())
		}
	case got.Timestamp.Before(run.began.Truncate(time.Millisecond)) || got.Timestamp.After(run.ended):
		differ("timestamp", fmt.Sprintf("one from %s to %s", run.began.UTC(), run.ended.UTC()), got.Timestamp.UTC().String())
	}
	return diffs
}

// same reports whether a and b are equal. It distinguishes null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func names(headers []Header) string {
	var all []string
	for _, h := range headers {
		all = append(all, h.Name)
	}
	return strings.Join(all, ", ")
}

// longest is the maximum number of bytes of a value in a message.
const longest = 300

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case !utf8.Valid(b):
		return fmt.Sprintf("%x (%d bytes)", b[:min(len(b), longest/2)], len(b))
	case len(b) > longest:
		return fmt.Sprintf("%q… (%d bytes)", b[:longest], len(b))
	default:
		return fmt.Sprintf("%q", b)
	}
}
