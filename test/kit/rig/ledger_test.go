package rig

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A ledger reports each kind of error in the records.
func TestLedgerFindsErrors(t *testing.T) {
	const topic = "outbox.event.order"
	good := func(key string, n int) *kgo.Record {
		e := Event{key, n}
		return &kgo.Record{
			Topic: topic, Key: []byte(key), Value: e.payload(), Timestamp: time.Now(),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(e.ID().String())}, {Key: "eventType", Value: []byte(eventType)}},
		}
	}
	for name, tc := range map[string]struct {
		records func() []*kgo.Record
		broken  bool
	}{
		"nothing wrong": {records: func() []*kgo.Record { return []*kgo.Record{good("a", 0), good("b", 0), good("a", 1), good("a", 2)} }},
		"a duplicate": {records: func() []*kgo.Record {
			return []*kgo.Record{good("a", 0), good("a", 0), good("b", 0), good("a", 1), good("a", 2)}
		}},
		"lost at the end":    {broken: true, records: func() []*kgo.Record { return []*kgo.Record{good("a", 0), good("b", 0), good("a", 1)} }},
		"lost in the middle": {broken: true, records: func() []*kgo.Record { return []*kgo.Record{good("a", 0), good("b", 0), good("a", 2)} }},
		"swapped":            {broken: true, records: func() []*kgo.Record { return []*kgo.Record{good("a", 0), good("b", 0), good("a", 2), good("a", 1)} }},
		"one too many": {broken: true, records: func() []*kgo.Record {
			return []*kgo.Record{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 3)}
		}},
		"an old one last": {broken: true, records: func() []*kgo.Record {
			return []*kgo.Record{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 1)}
		}},
		"a byte altered": {broken: true, records: func() []*kgo.Record {
			r := good("b", 0)
			r.Value[len(r.Value)-3] ^= 1
			return []*kgo.Record{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"another partition": {broken: true, records: func() []*kgo.Record {
			r := good("a", 1)
			r.Partition = 1
			return []*kgo.Record{good("a", 0), good("b", 0), r, good("a", 2)}
		}},
		"two duplicates": {broken: true, records: func() []*kgo.Record {
			return []*kgo.Record{good("a", 0), good("a", 0), good("a", 0), good("b", 0), good("a", 1), good("a", 2)}
		}},
		"another id": {broken: true, records: func() []*kgo.Record {
			r := good("b", 0)
			r.Headers[0].Value = []byte(Event{"b", 1}.ID().String())
			return []*kgo.Record{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"another type": {broken: true, records: func() []*kgo.Record {
			r := good("b", 0)
			r.Headers[1].Value = []byte("OrderPlaced")
			return []*kgo.Record{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"from the future": {broken: true, records: func() []*kgo.Record {
			r := good("b", 0)
			r.Timestamp = r.Timestamp.Add(2 * time.Minute)
			return []*kgo.Record{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"rolled back": {broken: true, records: func() []*kgo.Record {
			r := good("a", 1)
			r.Headers[1].Value = []byte(PhantomType)
			return []*kgo.Record{good("a", 0), good("b", 0), r, good("a", 1), good("a", 2)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(topic, delivery.Config{})
			for i, r := range tc.records() {
				r.Offset = int64(i)
				l.take(r)
			}
			if found := l.Finish(delivery.UpTo(map[string]int{"a": 3, "b": 1}), 1); (found.All > 0) != tc.broken {
				t.Errorf("broken: want %v, got %s", tc.broken, found)
			}
		})
	}
}
