package kafka

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// Each acknowledged batch is told with where it is in the log, before its records are reported;
// what is said to that comes with the time the request took.
func TestDelivered(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 2, nil)
	var mu sync.Mutex
	var told, examples []string
	answered := func(_ time.Duration, example string) {
		mu.Lock()
		defer mu.Unlock()
		examples = append(examples, example)
	}
	var r *rig
	delivered := func(d sink.Delivery) string {
		mu.Lock()
		defer mu.Unlock()
		for _, seq := range d.Seqs {
			r.mu.Lock()
			if r.acked[seq] > 0 {
				t.Errorf("record %d was reported before", seq)
			}
			r.mu.Unlock()
		}
		told = append(told, fmt.Sprintf("%d at %d of %d", d.Seqs, d.Offset, d.Partition))
		if d.Topic != topic || !slices.Contains(k.Addrs, d.Broker) {
			t.Errorf("%+v", d)
		}
		return fmt.Sprint("trace of ", d.Seqs[0])
	}
	j := new(journal)
	r = startRig(t, openClient(t, Config{Brokers: k.Addrs}, j.logger()), j, sink.WriterConfig{Delivered: delivered, Answered: answered})
	for i := range 3 {
		r.send(recordFor(topic, 1, "first"))
		r.send(recordFor(topic, 1, "second"))
		r.producer.Flush()
		r.waitAcked(2 * (i + 1))
	}
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"[1 2] at 0 of 1", "[3 4] at 2 of 1", "[5 6] at 4 of 1"}, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"trace of 1", "trace of 3", "trace of 5"}, examples); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
