package jetstream

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// A record comes back as it was written, whatever bytes its key, headers and names have.
func TestRecordsSurviveTheServer(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	values := [][]byte{nil, {}, []byte("text"), []byte("ünï"), []byte(" space "), []byte("\t"), []byte("a\r\nNats-Rollup: all"), {0xff}, {0}, all}
	records := []sink.Record{{Value: []byte{}, Timestamp: at}, {Value: nil, Key: []byte{}, Timestamp: at}, {Value: all, Timestamp: at}}
	for _, v := range values {
		records = append(records, sink.Record{Key: v, Value: []byte("x"), Timestamp: at}, sink.Record{Value: []byte("x"), Timestamp: at, Headers: []sink.Header{{Key: "h", Value: v}}})
	}
	for _, name := range []string{
		"", "a", "A", "a b", "a:b", "ü", "Nats-Msg-Id", "nats-rollup", "Status", "status", "x_null", "x_base64", "x_null_base64",
		KeyHeader, KeyHeader + Base64Suffix, NullHeader, NamePrefix + "61", sink.TimestampHeader, strings.Repeat("n", 300), "\r\n", "id",
	} {
		records = append(records, sink.Record{Key: []byte("k"), Value: []byte("x"), Timestamp: at, Headers: []sink.Header{
			{Key: name, Value: []byte("1")}, {Key: name, Value: nil}, {Key: name, Value: []byte("2")}, {Key: name, Value: []byte{1}},
		}})
	}
	s := natstest.Start(t)
	name := s.Stream(t, jetstream.StreamConfig{})
	js, e := s.JetStream(t), new(encoder)
	for i := range records {
		r := &records[i]
		r.Topic = name
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: name, Header: e.encode(r), Data: r.Value}); err != nil {
			t.Fatalf("record %d, %+v: %v", i, r, err)
		}
	}
	for i, m := range s.ReadAll(t, name) {
		got := decode(m)
		want := sink.StoredRecord{Record: records[i], Offset: int64(i + 1)}
		got.Headers, want.Headers = grouped(got.Headers), grouped(want.Headers)
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("record %d: -want +got\n%s", i, diff)
		}
	}
}

// grouped sorts headers by name, and those of a name that are not text behind those that are: these are two names in NATS.
func grouped(headers []sink.Header) []sink.Header {
	form := func(h sink.Header) string {
		switch {
		case h.Value == nil:
			return h.Key + " 3"
		case !isText(h.Value):
			return h.Key + " 2"
		}
		return h.Key + " 1"
	}
	return slices.SortedStableFunc(slices.Values(headers), func(a, b sink.Header) int { return strings.Compare(form(a), form(b)) })
}

// A usual record has the headers that the documentation shows, and no other.
func TestUsualMessage(t *testing.T) {
	t.Parallel()
	const id = "0198b1c9-8d36-7f44-b1c3-4a33a1f1a001"
	r := &sink.Record{
		Topic: "orders", Key: []byte("o-1"), Value: []byte("{}"), Timestamp: time.UnixMilli(1_700_000_000_123),
		Headers:  []sink.Header{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("OrderPlaced")}},
		Position: sink.Position{CommitLSN: 1},
	}
	e := new(encoder)
	for range 2 { // the encoder uses its memory again
		want := nats.Header{
			"id": {id}, "eventType": {"OrderPlaced"}, "outbox_key": {"o-1"}, "outbox_timestamp": {"2023-11-14T22:13:20.123Z"}, "Nats-Msg-Id": {id},
		}
		if got := e.encode(r); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("headers %v, want %v", got, want)
		}
	}
}

// A record has a Nats-Msg-Id only if JetStream may drop another one with the same id.
func TestMessageID(t *testing.T) {
	t.Parallel()
	const id = "0198b1c9-8d36-7f44-b1c3-4a33a1f1a001"
	streamed := sink.Position{CommitLSN: 1}
	for _, test := range []struct {
		why      string
		id       []byte
		position sink.Position
		want     string
	}{
		{"a streamed row", []byte(id), streamed, id},
		{"a row that is sent again on request", []byte(id), sink.Position{}, ""},
		{"an id that another table may have too", []byte("17"), streamed, ""},
		{"a null id", nil, streamed, ""},
	} {
		r := &sink.Record{Position: test.position, Headers: []sink.Header{{Key: "x"}, {Key: "id", Value: test.id}}}
		if got := messageID(r); got != test.want {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("h_base64", "!", "outbox_name_zz", "x", []byte("value"))
	f.Add(KeyHeader, "k", "outbox_key_null", "", []byte{})
	f.Add(sink.TimestampHeader, "yesterday", NullHeader, "value", []byte("x"))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, data []byte) {
		got := decode(&jetstream.RawStreamMsg{Data: data, Header: nats.Header{name1: {value1}, name2: {value2, value1}}})
		if got.Value != nil && !bytes.Equal(got.Value, data) {
			t.Error("the value has changed")
		}
	})
}

// Keys and headers that are text go through the encoder unchanged, and any record comes back from it.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), "name", []byte("value"))
	f.Add([]byte(nil), []byte(nil), "nats-x", []byte("\r\n"))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte) {
		want := sink.Record{Key: key, Value: value, Headers: []sink.Header{{Key: name, Value: header}}, Timestamp: time.UnixMilli(5).UTC()}
		headers := new(encoder).encode(&want)
		for name, values := range headers {
			for _, v := range values {
				if !isText([]byte(v)) || !isPlainName(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, NamePrefix), KeyHeader), NullHeader)+"x") {
					t.Errorf("header %q: %q", name, v)
				}
			}
		}
		got := decode(&jetstream.RawStreamMsg{Data: value, Header: headers})
		if diff := cmp.Diff(want, got.Record); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}
