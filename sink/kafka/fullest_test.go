package kafka

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// pick selects a request, and returns the number of batches of each partition in it. It then puts the partitions back
// as if they had further batches of the same size.
func pick(t *testing.T, s *sender) map[int32]int {
	t.Helper()
	if !s.pickBatches() {
		t.Fatal("nothing to send")
	}
	picked := make(map[int32]int)
	for i := range s.batches {
		sh := &s.batches[i]
		picked[sh.part.id]++
		sh.part.inRequest, sh.batch.sealed, sh.batch.sent, sh.batch.sequence = false, false, false, noSequence
		s.producer.makeReady(sh.part)
	}
	s.busy = false
	return picked
}

// If the batches do not fit into one request, those that are largest leave first, and the others gather. But none waits
// for more than maxPassed requests.
func TestFullestBatchesLeaveFirst(t *testing.T) {
	const partitions = 300
	p, _ := newOfflineProducer(t, Config{}, partitions)
	p.identityLost = false
	value := make([]byte, 500)
	for id := range int32(partitions) {
		for range 1 + int(id)/10 { // 1 to 30 records
			if err := p.Send(t.Context(), &sink.Record{Topic: "t", Partition: id, Value: value}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := p.topics["t"].parts[0].sender
	first := pick(t, s)
	size := 0
	for id := range first {
		size += p.topics["t"].parts[id].queue[0].size
		if id < partitions-110 { // 80 batches of 23 to 30 records are more than a request; those of 20 may be as urgent
			t.Errorf("partition %d, with %d records, is in the first request", id, 1+int(id)/10)
		}
	}
	if size > maxRequestBytes || size < maxRequestBytes*9/10 {
		t.Errorf("the first request has %d bytes", size)
	}
	waited := make(map[int32]bool, partitions)
	for id := range int32(partitions) {
		waited[id] = first[id] == 0
	}
	// When the smallest are due, they need a few requests, because they are not alone.
	for range maxPassed + partitions/len(first) + 1 {
		for id := range pick(t, s) {
			delete(waited, id)
		}
	}
	for id, never := range waited {
		if never {
			t.Errorf("partition %d was never sent", id)
		}
	}
}

// If all batches fit into one request, the request has all of them.
func TestSmallBatchesLeaveAtOnce(t *testing.T) {
	p, _ := newOfflineProducer(t, Config{}, 1000)
	for id := range int32(1000) {
		if err := p.Send(t.Context(), &sink.Record{Topic: "t", Partition: id}); err != nil {
			t.Fatal(err)
		}
	}
	if got := pick(t, p.topics["t"].parts[0].sender); len(got) != 1000 {
		t.Errorf("the request has %d partitions, want all", len(got))
	}
}
