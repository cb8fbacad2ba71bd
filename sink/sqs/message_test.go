package sqs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
)

func pair(name, value string) sink.Header { return sink.Header{Key: name, Value: []byte(value)} }

// TestRoundTrip: every record can be restored from its message, and a value that can be a body is the body.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var many []sink.Header
	for i := range 15 {
		many = append(many, pair(fmt.Sprint("h", 10+i), "v"))
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	for name, r := range map[string]sink.Record{
		"plain":          {Key: []byte("k"), Value: []byte(`{"a": 1.00}`), Headers: []sink.Header{pair("eventType", "T"), pair("id", "1")}, Timestamp: at},
		"null":           {Key: []byte("k")},
		"empty":          {Key: []byte{}, Value: []byte{}},
		"no key":         {Value: []byte("v")},
		"text":           {Key: []byte("\t ä \U0001F600"), Value: []byte("\r\n\u2028 \uFFFD")},
		"control":        {Key: []byte("\x00"), Value: []byte("a\x01")},
		"noncharacter":   {Key: []byte("k"), Value: []byte("a\uFFFF")},
		"not UTF-8":      {Key: []byte("\xff"), Value: []byte("\xff\x00"), Headers: []sink.Header{pair("bin", "\xfe")}},
		"ten headers":    {Key: []byte("k"), Value: []byte("v"), Headers: many[:9]},
		"many headers":   {Key: []byte("k"), Value: []byte{}, Headers: many, Timestamp: at},
		"odd headers":    {Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{pair("a", "1"), pair("", "2"), pair("ä", "\x00\uFFFE"), {Key: "null"}, pair("z..z", "\xff")}},
		"same names":     {Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{pair("a", "1"), pair("a", "2"), pair("a", "1")}},
		"reserved names": {Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{pair("AWS.x", "1"), pair("amazon.y", "2"), pair("outbox_body", "base64"), pair("outbox_timestamp", "x")}},
	} {
		m := newMessage(&r, true, "token")
		stored := awstest.Message{Body: m.body, Attributes: make(map[string]awstest.Attribute)}
		for _, a := range m.attributes {
			kind := "String"
			if a.binary != nil {
				kind = "Binary"
			}
			if a.text == "" && len(a.binary) == 0 || !isText([]byte(a.text)) || !attributeName.MatchString(a.name) {
				t.Errorf("%s: attribute %s is not valid", name, a.name)
			}
			stored.Attributes[a.name] = awstest.Attribute{DataType: kind, StringValue: a.text, BinaryValue: a.binary}
		}
		if len(m.attributes) > maxAttributes || len(stored.Attributes) != len(m.attributes) || m.body == "" || !isText([]byte(m.body)) {
			t.Errorf("%s: %d attributes, %d names, body %q", name, len(m.attributes), len(stored.Attributes), m.body)
		}
		if isText(r.Value) && len(r.Value) > 0 && m.body != string(r.Value) {
			t.Errorf("%s: body %q", name, m.body)
		}
		got := storedRecords(t, "", []awstest.Message{stored})[0]
		same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
		if !same(got.Key, r.Key) || !same(got.Value, r.Value) || !got.Timestamp.Equal(r.Timestamp) || len(got.Headers) != len(r.Headers) {
			t.Errorf("%s: got %+v", name, got)
			continue
		}
		for i, h := range got.Headers {
			if h.Key != r.Headers[i].Key || !same(h.Value, r.Headers[i].Value) {
				t.Errorf("%s: header %d is %+v", name, i, h)
			}
		}
	}
}

// TestIdentifiers: group and deduplication ids have the form that the service accepts, and differ where records do.
func TestIdentifiers(t *testing.T) {
	t.Parallel()
	record := func(key string, seq uint64, headers ...sink.Header) message {
		return newMessage(&sink.Record{Seq: seq, Key: []byte(key), Headers: headers}, true, "token")
	}
	long := strings.Repeat("x", maxID+1)
	groups := make(map[string]string)
	for _, key := range []string{"42", "a!~/", "two words", "ä", "", long, long + "x"} {
		m := record(key, 1)
		if m.group == "" || len(m.group) > maxID || strings.ContainsAny(m.group, " ä") || groups[m.group] != "" {
			t.Errorf("key %q: group %q", key, m.group)
		}
		groups[m.group] = key + "."
	}
	if g := record("42", 1).group; g != "42" {
		t.Errorf("group %q", g)
	}
	id := pair("id", "0198")
	if d := record("k", 1, id, pair("id", "placed")).duplication; d != "0198" {
		t.Errorf("deduplication id %q", d)
	}
	seen := make(map[string]bool)
	for _, m := range []message{
		record("k", 1, id), record("k", 1, pair("id", long)), record("k", 1), record("k", 2),
		record("k", 1, id, pair("replayed", "true")),
	} {
		if seen[m.duplication] || len(m.duplication) > maxID {
			t.Errorf("deduplication id %q", m.duplication)
		}
		seen[m.duplication] = true
	}
	keyless := newMessage(&sink.Record{Headers: []sink.Header{id}}, true, "token")
	if keyless.group != "0198" {
		t.Errorf("a record without a key has the group %q", keyless.group)
	}
	if m := newMessage(&sink.Record{Key: []byte("k")}, false, "token"); m.group != "" || m.duplication != "" {
		t.Error("a message for a standard queue has a group")
	}
}

func TestParseDestination(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Destination{
		"orders.fifo": {name: "orders.fifo", fifo: true},
		"https://sqs.eu-central-1.amazonaws.com/123456789012/orders":     {region: "eu-central-1", name: "orders"},
		"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/a.fifo":    {region: "cn-north-1", name: "a.fifo", fifo: true},
		"https://eu-west-1.queue.amazonaws.com/123456789012/a":           {region: "eu-west-1", name: "a"},
		"https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/123456789012/a": {name: "a"},
		"http://127.0.0.1:9324/000000000000/a":                           {name: "a"},
		"arn:aws:sqs:eu-central-1:123456789012:orders.fifo":              {region: "eu-central-1", account: "123456789012", name: "orders.fifo", fifo: true},
		"arn:aws-us-gov:sns:us-gov-west-1:123456789012:orders":           {service: topics, region: "us-gov-west-1", account: "123456789012", name: "orders"},
	} {
		got, err := ParseDestination(s)
		if strings.HasPrefix(s, "http") {
			want.url = s
		}
		if want.service == topics {
			want.arn = s
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "a b", "a.fifo.fifo", "a.b", "https://", "https://host/1/a?x=1", "arn:aws:s3:::bucket", "arn:aws:sqs:eu-central-1:1:q",
		"arn:aws:sns:eu-central-1:123456789012:t:subscription", strings.Repeat("q", 81), "https://user:word@host/1/q",
	} {
		if d, err := ParseDestination(s); err == nil {
			t.Errorf("%q: %+v", s, d)
		}
	}
}

// TestContactDestination: a template is enough to know what to contact.
func TestContactDestination(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"": "Amazon SQS",
		"arn:aws:sns:eu-west-1:123456789012:${route}.fifo":          "Amazon SNS in eu-west-1",
		"https://sqs.eu-west-1.amazonaws.com/123456789012/${route}": "Amazon SQS in eu-west-1",
		"${route}.fifo": "Amazon SQS",
	} {
		if got := (Config{Destination: template}).String(); got != want {
			t.Errorf("%s: %s", template, got)
		}
	}
}
