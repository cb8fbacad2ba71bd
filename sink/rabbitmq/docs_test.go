package rabbitmq

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
)

// TestDocumentedDefinitions: the definitions of docs/rabbitmq.md are enough for a relay, and its user may do nothing else.
func TestDocumentedDefinitions(t *testing.T) {
	r := rabbittest.Real(t)
	page, err := os.ReadFile("../../docs/rabbitmq.md")
	if err != nil {
		t.Fatal(err)
	}
	definitions := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if definitions == nil {
		t.Fatal("docs/rabbitmq.md has no definitions")
	}
	file := filepath.Join(t.TempDir(), "definitions.json")
	if err := os.WriteFile(file, definitions[1], 0o600); err != nil {
		t.Fatal(err)
	}
	r.Run(t, "import_definitions", file)
	t.Cleanup(func() {
		r.Run(t, "delete_vhost", "shop")
		r.Run(t, "delete_user", "outbox")
	})
	r.Run(t, "set_permissions", "--vhost", "shop", "guest", ".*", ".*", ".*")
	cfg := configOf(r, "shop")
	cfg.User, cfg.Password = "outbox", password("change-me")
	for _, f := range sinktest.Inspect(sinktest.Context(t), t, cfg, sink.Use{Destinations: []sink.Destination{{Name: "events"}}, DeadLetters: "dead-letters"}) {
		if f.State != sink.Met {
			t.Errorf("finding %+v", f)
		}
	}
	w := startWriter(t, cfg, sink.WriterConfig{})
	w.send("events", 10, sink.Header{Key: typeHeader, Value: []byte("order.placed")})
	w.send("dead-letters", 3)
	w.Drain(13)
	for queue, want := range map[string]int{"orders": 10, "dead-letters": 3} {
		if n := len(readQueue(t, r.URL("shop"), queue)); n != want {
			t.Errorf("queue %s has %d messages, want %d", queue, n, want)
		}
	}
}

// TestConsistentHash: an exchange that hashes the header of the key keeps each key in one queue, in order.
func TestConsistentHash(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	ch := dialChannel(t, r.URL(vhost))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ch.ExchangeDeclare("events", amqp.ExchangeTopic, true, false, false, false, nil))
	must(ch.ExchangeDeclare("by-key", "x-consistent-hash", true, false, false, false, amqp.Table{"hash-header": KeyHeader}))
	must(ch.ExchangeBind("by-key", "#", "events", false, nil))
	for i := range 4 {
		queue := fmt.Sprint("orders-", i)
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
		must(err)
		must(ch.QueueBind(queue, "1", "by-key", false, nil))
	}
	w := startWriter(t, configOf(r, vhost), sink.WriterConfig{})
	for i := range 1000 {
		rec := &sink.Record{Seq: uint64(i + 1), Topic: "events/x", Partition: sink.AnyPartition, Key: fmt.Append(nil, "key ", i%50), Value: fmt.Append(nil, i)}
		must(w.Writer.Send(sinktest.Context(t), rec))
	}
	w.Drain(1000)
	queueOf, last := make(map[string]int), make(map[string]int)
	for i := range 4 {
		for _, d := range readQueue(t, r.URL(vhost), fmt.Sprint("orders-", i)) {
			key := d.Headers[KeyHeader].(string)
			var n int
			_, err := fmt.Sscan(string(d.Body), &n)
			must(err)
			if before, ok := queueOf[key]; ok && (before != i || n < last[key]) {
				t.Errorf("message %d of %s is in queue %d after message %d in queue %d", n, key, i, last[key], before)
			}
			queueOf[key], last[key] = i, n
		}
	}
	if len(queueOf) != 50 {
		t.Errorf("%d keys are stored", len(queueOf))
	}
}
