package audit

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An expectation is what a row says about its record.
type expectation struct {
	rec      sink.Record
	rejected error // no record can be made of the row
}

// explainAltered reads the altered records of the findings again, and says what they have and what their rows say.
func (a *auditor) explainAltered(ctx context.Context) error {
	for i := range a.findings {
		f := &a.findings[i]
		want, ok := a.expected[f.id]
		if f.Kind != Altered || !ok {
			continue
		}
		if want.rejected != nil {
			f.Detail += ": " + want.rejected.Error()
			continue
		}
		offsets := sink.OffsetRange{Partition: *f.Partition, Begin: *f.Offset, End: *f.Offset + 1}
		err := a.reader.Read(ctx, f.Topic, offsets, func(stored *sink.StoredRecord) error {
			if text := differences(&want.rec, stored, f.Topic); text != "" { // otherwise the row has changed meanwhile
				f.Detail = text
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// differences describes how a record in topic differs from that of its row: topic and key with both values, headers by
// their names, and values by their sizes, because they may be secret.
func differences(want *sink.Record, got *sink.StoredRecord, topic string) string {
	var parts []string
	differ := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if want.Topic != topic {
		differ("its topic is not %s", want.Topic)
	}
	if !same(want.Key, got.Key) {
		differ("its key is %s, not %s", quoted(got.Key), quoted(want.Key))
	}
	if want.Partition != sink.AnyPartition && want.Partition != got.Partition {
		differ("its partition is not %d", want.Partition)
	}
	parts = append(parts, headerDifferences(want.Headers, got.Headers)...)
	if !same(want.Value, got.Value) {
		differ("its value (%s) is not that of the row (%s)", size(got.Value), size(want.Value))
	}
	return strings.Join(parts, "; ")
}

// headerDifferences describes the headers that are not about the delivery and differ, in the order of their names.
func headerDifferences(want, got []sink.Header) (parts []string) {
	wanted, found := headersByName(want), headersByName(got)
	names := maps.Clone(wanted)
	maps.Copy(names, found)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, g := wanted[name], found[name]
		switch {
		case g == nil:
			parts = append(parts, "it has no header "+name)
		case w == nil:
			parts = append(parts, "its header "+name+" is not of the row")
		case !slices.EqualFunc(w, g, same):
			parts = append(parts, "its header "+name+" has another value than the row")
		}
	}
	return parts
}

func headersByName(headers []sink.Header) map[string][][]byte {
	of := make(map[string][][]byte, len(headers))
	for _, h := range headers {
		if !ownHeader(h.Key) {
			of[h.Key] = append(of[h.Key], h.Value)
		}
	}
	return of
}

// same reports whether two parts of a record are equal. A null is not empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func quoted(key []byte) string {
	if key == nil {
		return "null"
	}
	return fmt.Sprintf("%.100q", key)
}

func size(value []byte) string {
	if value == nil {
		return "null"
	}
	return fmt.Sprintf("%d bytes", len(value))
}
