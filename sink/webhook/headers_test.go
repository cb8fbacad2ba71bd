package webhook

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

func header(pairs ...string) []sink.Header {
	var all []sink.Header
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, sink.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return all
}

func wrapped(t *testing.T, r *sink.Record) http.Header {
	t.Helper()
	cfg := Config{URL: "http://localhost", Source: "/shop"}.withDefaults()
	if r.Timestamp.IsZero() {
		r.Timestamp = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.FixedZone("", 3600))
	}
	return wrap(&cfg, r).header
}

func TestHeaders(t *testing.T) {
	got := wrapped(t, &sink.Record{
		Key: []byte("käse 100%"), Value: []byte(`{"n":1.10}`),
		Headers: header("id", "0b6c", "eventType", "OrderPlaced", "tenant_id", "a b", "tenant-id", "c",
			"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate", "a=1, b=2",
			"json", `{"a": "ü"}`, "empty", "", "naïve name", "x"),
	})
	want := http.Header{
		"Ce-Specversion":           {"1.0"},
		"Ce-Id":                    {"0b6c"},
		"Ce-Source":                {"/shop"},
		"Ce-Type":                  {"OrderPlaced"},
		"Ce-Time":                  {"2026-01-02T02:04:05.678Z"},
		"Ce-Subject":               {"k%C3%A4se%20100%25"},
		"Content-Type":             {"application/json"},
		idempotencyHeader:          {"0b6c"},
		"User-Agent":               {"outbox-cdc"},
		"Traceparent":              {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Tracestate":               {"a=1, b=2"},
		"Outbox-Tenant-Id":         {"a%20b", "c"},
		"Outbox-Json":              {`{%22a%22:%20%22%C3%BC%22}`},
		"Outbox-Empty":             {""},
		"Outbox-Na%c3%afve%20name": {"x"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHostileHeaders: whatever a row has in its headers and key, it gives no header that has a meaning of its own, and no
// value ends a header.
func TestHostileHeaders(t *testing.T) {
	hostile := "x\r\nAuthorization: Bearer stolen\r\n\r\n\x00ÿ"
	names := []string{
		"Authorization", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Cookie", "Forwarded", "X-Forwarded-For", "ce-id", "ce-type",
		"webhook-signature", "Webhook-Id", "Idempotency-Key", "id", "eventType", "Expect", "Trailer", "TE", "Upgrade", "User-Agent", "traceparent",
		"content-type", "a\r\nHost: evil", "", " ", ":", "Outbox-", "é",
	}
	r := &sink.Record{Key: []byte(hostile), Value: []byte("{}"), Headers: header("id", "1", "eventType", "t")}
	for _, name := range names {
		r.Headers = append(r.Headers, header(name, hostile)...)
	}
	r.Headers = append(r.Headers, header("content-type", "application/cloudevents+json")...)
	got := wrapped(t, r)
	own := []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type", "Ce-Time", "Ce-Keybase64", "Content-Type", idempotencyHeader, "User-Agent"}
	for name, values := range got {
		if !slices.Contains(own, name) && !strings.HasPrefix(name, headerPrefix) {
			t.Errorf("a row gives the header %q", name)
		}
		for i := range len(name) {
			if !isToken(name[i]) {
				t.Errorf("%q is not a name", name)
			}
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%s has the value %q", name, v)
			}
		}
	}
	for name, want := range map[string]string{"Ce-Id": "1", "Ce-Type": "t", idempotencyHeader: "1", "Content-Type": "application/json"} {
		if !slices.Equal(got[name], []string{want}) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}

func TestEncodeIsReversible(t *testing.T) {
	for _, text := range []string{"", "a", `a "b" %20`, "Euro € 😀", "\r\n\x00\x7f", "\xff\xfe"} {
		got := encode(text)
		if back, err := url.PathUnescape(got); err != nil || back != text {
			t.Errorf("%q becomes %q, and %q again: %v", text, got, back, err)
		}
	}
	if got, want := encode("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80"; got != want {
		t.Errorf("%q, the HTTP binding has %q", got, want)
	}
}

func TestNullsAndContentTypes(t *testing.T) {
	for _, tt := range []struct {
		name string
		rec  sink.Record
		want map[string]string // "-": no such header
	}{
		{"null value", sink.Record{Key: []byte("k")}, map[string]string{"Content-Type": "-", "Ce-Subject": "k"}},
		{"empty value", sink.Record{Value: []byte{}}, map[string]string{"Content-Type": "application/json", "Ce-Subject": "-", "Ce-Keybase64": "-"}},
		{"empty key", sink.Record{Key: []byte{}}, map[string]string{"Ce-Subject": "-", "Ce-Keybase64": ""}},
		{"binary key", sink.Record{Key: []byte{0xff, 0}}, map[string]string{"Ce-Subject": "-", "Ce-Keybase64": "/wA="}},
		{"content type of the row", sink.Record{Value: []byte("x"), Headers: header("Content-Type", "application/avro")}, map[string]string{"Content-Type": "application/avro"}},
		{"binary id", sink.Record{Headers: header("id", "\xff")}, map[string]string{"Ce-Id": "_w"}},
		{"no type", sink.Record{}, map[string]string{"Ce-Type": "outbox.event"}},
		{"empty type", sink.Record{Headers: header("eventType", "")}, map[string]string{"Ce-Type": "outbox.event"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := wrapped(t, &tt.rec)
			for name, want := range tt.want {
				values, ok := got[name]
				if want == "-" && ok || want != "-" && (!ok || values[0] != want) {
					t.Errorf("%s: %q, want %q", name, values, want)
				}
			}
		})
	}
}

// TestIdentify: a record without an id has the same one at each attempt, and differs from every other record.
func TestIdentify(t *testing.T) {
	base := sink.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(1), Headers: header("a", "b")}
	seen := make(map[string]string)
	for name, change := range map[string]func(r *sink.Record){
		"none":      func(*sink.Record) {},
		"topic":     func(r *sink.Record) { r.Topic = "u" },
		"key":       func(r *sink.Record) { r.Key, r.Value = []byte("kv"), nil },
		"time":      func(r *sink.Record) { r.Timestamp = time.UnixMilli(2) },
		"row":       func(r *sink.Record) { r.Position.Index = 1 },
		"commit":    func(r *sink.Record) { r.Position.CommitLSN = 1 },
		"header":    func(r *sink.Record) { r.Headers = header("ab", "") },
		"no header": func(r *sink.Record) { r.Headers = nil },
	} {
		r := base
		change(&r)
		id := identify(&r)
		if again := identify(&r); again != id || seen[id] != "" {
			t.Errorf("%s: %s, then %s, as %s", name, id, again, seen[id])
		}
		seen[id] = fmt.Sprint(name)
	}
}
