package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// readAll reads every span of a topic.
func readAll(tb testing.TB, k *kafkatest.Cluster, topic string) (spans []sink.Span, records []sink.StoredRecord) {
	tb.Helper()
	r, err := Config{Brokers: k.Addrs}.OpenDeadLetters(testContext(tb), topic, new(journal).logger())
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	if spans, err = r.Spans(testContext(tb)); err != nil {
		tb.Fatal(err)
	}
	for _, span := range spans {
		if err := r.Read(testContext(tb), span, func(rec *sink.StoredRecord) error {
			records = append(records, *rec)
			return nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
	return spans, records
}

// Records are read as they were sent, nulls as nulls, with their own timestamps, whatever
// the topic makes of those, of every partition, from what is left on.
func TestDeadLetters(t *testing.T) {
	k := kafkatest.Broker(t)
	topic := k.Topic(t, 2, map[string]string{"message.timestamp.type": "LogAppendTime"})
	at := time.UnixMilli(1_700_000_000_123).UTC()
	client := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	sent := []*kgo.Record{
		{Topic: topic, Partition: 0, Key: []byte("gone"), Value: []byte("gone"), Timestamp: at},
		{Topic: topic, Partition: 0, Key: []byte("a"), Value: []byte("1"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("7")}, {Key: "null"}, {Key: "empty", Value: []byte{}}}},
		{Topic: topic, Partition: 0, Timestamp: at.Add(time.Millisecond)},
		{Topic: topic, Partition: 1, Key: []byte{}, Value: []byte{}, Timestamp: at},
	}
	for _, rec := range sent {
		if err := client.ProduceSync(testContext(t), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 1, -1)
	if _, err := k.Admin(t).DeleteRecords(testContext(t), offsets); err != nil {
		t.Fatal(err)
	}
	spans, got := readAll(t, k, topic)
	if diff := cmp.Diff([]sink.Span{{Partition: 0, Begin: 1, End: 3}, {Partition: 1, Begin: 0, End: 1}}, spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	want := []sink.StoredRecord{
		{Record: sink.Record{Topic: topic, Partition: 0, Key: []byte("a"), Value: []byte("1"), Timestamp: at, Headers: []sink.Header{{Key: "id", Value: []byte("7")}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}}}, Offset: 1},
		{Record: sink.Record{Topic: topic, Partition: 0, Timestamp: at.Add(time.Millisecond)}, Offset: 2},
		{Record: sink.Record{Topic: topic, Partition: 1, Key: []byte{}, Value: []byte{}, Timestamp: at}, Offset: 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// Reading goes on over many fetches, and ends where its span does or its caller wants.
func TestDeadLettersGoesOn(t *testing.T) {
	k := kafkatest.Fake(t)
	topic := k.Topic(t, 1, nil)
	const n = 3000
	client := k.Client(t)
	for i := range n {
		client.Produce(testContext(t), &kgo.Record{Topic: topic, Value: fmt.Appendf(make([]byte, 1000), "%d", i)}, nil)
	}
	if err := client.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	r, err := Config{Brokers: k.Addrs}.OpenDeadLetters(testContext(t), topic, new(journal).logger())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := int64(10)
	if err := r.Read(testContext(t), sink.Span{Partition: 0, Begin: next, End: n - 10}, func(rec *sink.StoredRecord) error {
		if rec.Offset != next {
			return fmt.Errorf("offset %d, want %d", rec.Offset, next)
		}
		next++
		return nil
	}); err != nil || next != n-10 {
		t.Errorf("read up to %d: %v", next, err)
	}
	enough := errors.New("enough")
	if err := r.Read(testContext(t), sink.Span{End: n}, func(*sink.StoredRecord) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("an error of the caller: %v", err)
	}
}

func TestDeadLettersErrors(t *testing.T) {
	k := kafkatest.Fake(t)
	if _, err := (Config{Brokers: k.Addrs, CreateTopics: &TopicSpec{}}).OpenDeadLetters(testContext(t), "nobody", new(journal).logger()); !errors.Is(err, sink.ErrMissing) {
		t.Errorf("a topic that is not there: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := (Config{Brokers: []string{"127.0.0.1:1"}}).OpenDeadLetters(ctx, "nobody", new(journal).logger()); !errors.Is(err, sink.ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
}

// To read takes the rights to Describe and Read, and none to write; a refusal comes at once.
func TestDeadLettersRights(t *testing.T) {
	may := func(operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "t", Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: operation, Allow: true,
		}
	}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "t"),
		kfake.Superuser("PLAIN", "admin", password),
		kfake.User("PLAIN", "reader", password, may(kmsg.ACLOperationRead)),
		kfake.User("PLAIN", "watcher", password, may(kmsg.ACLOperationDescribe)),
		kfake.User("PLAIN", "nobody", password))
	admin := k.Client(t, kgo.SASL(plain.Auth{User: "admin", Pass: password}.AsMechanism()))
	if err := admin.ProduceSync(testContext(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	read := func(user, secret string) error {
		r, err := Config{Brokers: k.Addrs, SASL: login("PLAIN", user, secret)}.OpenDeadLetters(testContext(t), "t", new(journal).logger())
		if err != nil {
			return err
		}
		defer r.Close()
		spans, err := r.Spans(testContext(t))
		if err != nil {
			return err
		}
		return r.Read(testContext(t), spans[0], func(*sink.StoredRecord) error { return nil })
	}
	if err := read("reader", password); err != nil {
		t.Errorf("who may read: %v", err)
	}
	for user, secret := range map[string]string{"watcher": password, "nobody": password, "reader": "wrong"} {
		began := time.Now()
		if err := read(user, secret); !errors.Is(err, sink.ErrAccess) || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %v after %v", user, err, time.Since(began))
		}
	}
}
