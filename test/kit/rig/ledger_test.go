package rig

import (
	"testing"
	"time"
)

// The checker must notice what it is there for.
func TestLedgerNotices(t *testing.T) {
	const topic = "outbox.event.order"
	good := func(key string, n int) received {
		e := Event{key, n}
		return received{topic: topic, key: []byte(key), value: e.payload(), id: []byte(e.ID().String()), eventType: []byte(eventType), timestamp: time.Now()}
	}
	for name, tc := range map[string]struct {
		records func() []received
		broken  bool
	}{
		"nothing wrong": {records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2)} }},
		"a duplicate": {records: func() []received {
			return []received{good("a", 0), good("a", 0), good("b", 0), good("a", 1), good("a", 2)}
		}},
		"lost at the end":    {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 1)} }},
		"lost in the middle": {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 2)} }},
		"swapped":            {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 2), good("a", 1)} }},
		"one too many": {broken: true, records: func() []received {
			return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 3)}
		}},
		"an old one last": {broken: true, records: func() []received {
			return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 1)}
		}},
		"a byte altered": {broken: true, records: func() []received {
			r := good("b", 0)
			r.value[len(r.value)-3] ^= 1
			return []received{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"another partition": {broken: true, records: func() []received {
			r := good("a", 1)
			r.partition = 1
			return []received{good("a", 0), good("b", 0), r, good("a", 2)}
		}},
		"rolled back": {broken: true, records: func() []received {
			r := good("a", 1)
			r.eventType = []byte(PhantomType)
			return []received{good("a", 0), good("b", 0), r, good("a", 1), good("a", 2)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(topic)
			for _, r := range tc.records() {
				l.record(r)
			}
			probe := &testing.T{}
			l.Check(probe, map[string]int{"a": 3, "b": 1})
			if probe.Failed() != tc.broken {
				t.Errorf("failed: %v, want %v: %v", probe.Failed(), tc.broken, l.problems)
			}
		})
	}
}
