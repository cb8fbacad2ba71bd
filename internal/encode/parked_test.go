package encode

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A dead letter of a parked key says to which parking it belongs, also after it was truncated.
func TestParseParkedDeadLetter(t *testing.T) {
	want := Parked{Parking: "0c4f", Place: Place{Generation: 2, LSN: 0x10_0000_0007, Owner: 3, Index: 17}}
	deadLetter := Park(DeadRecord("dead", Origin{Slot: "s", Tx: tx}, &sink.Record{Topic: "orders", Value: []byte("v")}, "too large"), []byte("k"), want)
	for name, dead := range map[string]*sink.Record{"whole": deadLetter, "truncated": TruncateDeadLetter(deadLetter, ColumnNames{"id"}, true)} {
		l, ok := ParseDeadLetter(stored(dead, name == "whole"))
		if !ok || l.Parked == nil {
			t.Fatalf("%s: not recognized: %+v", name, l)
		}
		if diff := cmp.Diff(want, *l.Parked); diff != "" || string(l.Record.Key) != "k" {
			t.Errorf("%s: key %s, (-want +got):\n%s", name, l.Record.Key, diff)
		}
	}
	deadLetter.Headers[len(deadLetter.Headers)-2].Value = []byte("0c4f")
	if l, ok := ParseDeadLetter(deadLetter); !ok || l.Parked != nil {
		t.Errorf("a dead letter without a place belongs to %+v", l.Parked)
	}
}

// After a row was rejected, the record has the topic and the key of the row if they are valid, and otherwise none.
func TestRejectedRowKeepsTopicAndKey(t *testing.T) {
	router, err := New(defaultConfig(func(c *Config) { c.Topic = "t.${route}" }))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		values     map[string]string
		topic, key string
	}{
		"id":      {map[string]string{"id": null}, "t.order", "order-7"},
		"topic":   {map[string]string{"aggregatetype": "no topic!"}, "", "order-7"},
		"route":   {map[string]string{"aggregatetype": null}, "", "order-7"},
		"headers": {map[string]string{"headers": "[]"}, "t.order", "order-7"},
		"no key":  {map[string]string{"headers": "[]", "aggregateid": null}, "t.order", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var rec sink.Record
			err := router.Route(tx, 0, row(outboxTable(), tc.values), &rec)
			if err == nil || rec.Topic != tc.topic || string(rec.Key) != tc.key {
				t.Errorf("%v: topic %q, key %q", err, rec.Topic, rec.Key)
			}
		})
	}
}
