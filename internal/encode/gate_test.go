package encode

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// routeLimit is the highest accepted ratio. The measured ratio is 1.7.
const routeLimit = 2.7

// TestGate compares two costs: building a record, and copying its parts and looking up its topic.
func TestGate(t *testing.T) {
	r, err := New(defaultConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	ins := row(outboxTable(), nil)
	var rec sink.Record
	topics := map[string]string{DefaultTopic: DefaultTopic}
	var buf []byte
	ratio.Gate(t, routeLimit,
		func() {
			if err := r.Route(tx, 0, ins, &rec); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			buf = buf[:0]
			for i := range ins.Row {
				buf = append(buf, ins.Row[i].Data...)
			}
			if topics[string(append(buf[:0], DefaultTopic...))] == "" {
				t.Fatal("no topic")
			}
		})
}
