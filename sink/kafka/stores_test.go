package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	testwait "github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func openPositions(tb testing.TB, k *kafkatest.Cluster, topic, key string) (*positionStore, *sinktest.Journal) {
	tb.Helper()
	j := sinktest.NewJournal()
	s, err := openClient(tb, Config{Brokers: k.Addrs}, j.Logger()).openPositions(sinktest.Context(tb), topic, key)
	if err != nil {
		tb.Fatalf("open positions: %v", err)
	}
	return s, j
}

// firstKey and secondKey are keys of requests.
const (
	firstKey  = "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b01"
	secondKey = "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b02"
)

// own makes s the owner.
func own(tb testing.TB, s *positionStore) *owner {
	tb.Helper()
	o, err := s.Own(sinktest.Context(tb))
	if err != nil {
		tb.Fatalf("Own: %v", err)
	}
	return o.(*owner)
}

// write writes a position, as the owner.
func write(tb testing.TB, o *owner, value string) {
	tb.Helper()
	if err := o.Write(sinktest.Context(tb), sink.PositionKey, []byte(value)); err != nil {
		tb.Fatalf("Write: %v", err)
	}
}

// post posts a value, or nil.
func post(tb testing.TB, s *positionStore, key string, value []byte) {
	tb.Helper()
	if err := s.Post(sinktest.Context(tb), key, value); err != nil {
		tb.Fatalf("Post: %v", err)
	}
}

func wantValue(tb testing.TB, s *positionStore, want string) {
	tb.Helper()
	got := readValues(tb, s)
	if newest := append([]string{""}, got...)[len(got)]; newest != want {
		tb.Errorf("Read returns %q, want %q as the newest", got, want)
	}
}

// readValues returns the values of the store's own name that Read returns.
func readValues(tb testing.TB, s *positionStore) []string {
	tb.Helper()
	got, err := s.Read(sinktest.Context(tb))
	if err != nil {
		tb.Fatalf("Read: %v", err)
	}
	var values []string
	for _, v := range got {
		if v.Other == "" {
			values = append(values, string(v.Value))
		}
	}
	return values
}

// TestPositionTopicIsCreatedCompacted by the first store, and used by the next as it is.
func TestPositionTopicIsCreatedCompacted(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := kafkatest.UniqueName(t)
		k.DeleteTopics(t, topic)
		if _, log := openPositions(t, k, topic, "a"); !strings.Contains(log.String(), "topic created") {
			t.Errorf("log: %s", log)
		}
		if _, log := openPositions(t, k, topic, "b"); log.String() != "" {
			t.Errorf("log: %s", log)
		}
		configs, err := k.Admin(t).DescribeTopicConfigs(sinktest.Context(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs[0].Configs {
			if c.Key == cleanupPolicy && c.MaybeValue() != compact {
				t.Errorf("%s is %q", c.Key, c.MaybeValue())
			}
		}
	})
}

// TestTombstoneRemovesAPosition: a tombstone removes the value and those before it. To write nil writes a
// tombstone.
func TestTombstoneRemovesAPosition(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	o := own(t, s)
	write(t, o, "0")
	write(t, o, "1")
	if err := k.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: "positions", Key: []byte("key/position")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "")
	write(t, o, "2")
	write(t, o, "3")
	wantValues(t, s, "3")
	if err := o.Write(sinktest.Context(t), sink.PositionKey, nil); err != nil {
		t.Fatal(err)
	}
	post(t, s, firstKey, []byte("4"))
	post(t, s, firstKey, nil)
	wantValue(t, s, "")
	log := k.ReadAll(t, "positions")
	for i, key := range []string{"key/position", "key/" + firstKey, "key/" + firstKey} {
		if rec := log[len(log)-3+i]; string(rec.Key) != key || rec.Value != nil && i != 1 {
			t.Errorf("a tombstone is %q: %q", rec.Key, rec.Value)
		}
	}
}

// TestPositionIsFoundFarBack: a value is found however much others have written since.
func TestPositionIsFoundFarBack(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, log := openPositions(t, k.Cluster, "positions", "mine")
	if !strings.Contains(log.String(), "may expire") {
		t.Errorf("log: %s", log)
	}
	o := own(t, r)
	for i := range 3 {
		write(t, o, fmt.Sprint(i))
	}
	other := k.Client(t, kgo.DefaultProduceTopic("positions"))
	for range 10_100 {
		other.Produce(t.Context(), &kgo.Record{Key: []byte("other"), Value: []byte("x")}, nil)
	}
	if err := other.Flush(sinktest.Context(t)); err != nil {
		t.Fatal(err)
	}
	wantValue(t, r, "2")
	write(t, o, "3")
	wantValue(t, r, "3")
	absent, _ := openPositions(t, k.Cluster, "positions", "absent")
	wantValue(t, absent, "")
}

// TestPositionErrorsAreRetried: answers that heal are waited out, by Write and Read.
func TestPositionErrorsAreRetried(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	o := own(t, r)
	for _, f := range []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.LeaderNotAvailable, Count: 2},
		{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 2},
		{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable, Count: 1},
		{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.LeaderNotAvailable, Count: 1},
	} {
		k.Control.Fault(f)
	}
	write(t, o, "value")
	wantValue(t, r, "value")
}

// TestPositionReadEndsWithItsContext although the broker keeps answering with a transient error.
func TestPositionReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable, Count: -1})
	over := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	if _, err := r.Read(ctx); !errors.Is(err, over) {
		t.Errorf("Read: %v", err)
	}
}

// TestRejectedPositionEndsTheStore: what the broker never takes ends the store, and is not mistaken
// for a row that cannot be delivered.
func TestRejectedPositionEndsTheStore(t *testing.T) {
	k := kafkatest.Fake(t)
	k.CreateTopic(t, "positions", 1, map[string]string{"max.message.bytes": "1000", cleanupPolicy: compact})
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	o := own(t, r)
	for range 2 {
		err := o.Write(sinktest.Context(t), sink.PositionKey, bytes.Repeat([]byte("x"), 2000))
		if _, isRecord := errors.AsType[*sink.RecordError](err); isRecord || !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Write: %v", err)
		}
	}
}

// TestDeniedPositionTopicFailsAtOnce: a topic that may not be seen or made is told at once.
func TestDeniedPositionTopicFailsAtOnce(t *testing.T) {
	k := kafkatest.Fake(t)
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := openClient(t, Config{Brokers: k.Addrs}, sinktest.NewJournal().Logger()).OpenPositions(sinktest.Context(t), "positions", "key")
	if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "positions") {
		t.Errorf("OpenPositions: %v", err)
	}
}

// readAll reads every range of a topic.
func readAll(tb testing.TB, k *kafkatest.Cluster, topic string) (ranges []sink.OffsetRange, records []sink.StoredRecord) {
	tb.Helper()
	r, err := Config{Brokers: k.Addrs}.OpenDeadLetters(sinktest.Context(tb), topic, sinktest.NewJournal().Logger())
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	if ranges, err = r.OffsetRanges(sinktest.Context(tb)); err != nil {
		tb.Fatal(err)
	}
	for _, offsets := range ranges {
		if err := r.Read(sinktest.Context(tb), offsets, func(rec *sink.StoredRecord) error {
			records = append(records, *rec)
			return nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
	return ranges, records
}

// Records are read as they were sent, nulls as nulls, with their own timestamps, whatever
// the topic makes of those, of every partition, from what is left on.
func TestDeadLettersAreReadAsSent(t *testing.T) {
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
		if err := client.ProduceSync(sinktest.Context(t), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 1, -1)
	if _, err := k.Admin(t).DeleteRecords(sinktest.Context(t), offsets); err != nil {
		t.Fatal(err)
	}
	ranges, got := readAll(t, k, topic)
	if diff := cmp.Diff([]sink.OffsetRange{{Partition: 0, Begin: 1, End: 3}, {Partition: 1, Begin: 0, End: 1}}, ranges); diff != "" {
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
	if got := readRange(t, k, topic, sink.OffsetRange{Partition: 0, Begin: 0, End: 3}); !cmp.Equal(want[:2], got) {
		t.Errorf("a span whose first record has expired since: %v", got)
	}
}

// The ranges are those of the topic, also if a broker was asked twice because another one did not respond.
func TestOffsetRangesAfterRetry(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(2), kfake.SeedTopics(8, "t"))
	for partition := range int32(8) { // kfake chooses leaders at random
		if err := k.Control.MoveTopicPartition("t", partition, partition%2); err != nil {
			t.Fatal(err)
		}
	}
	var asked atomic.Int64
	k.Control.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Control.KeepControl()
		if asked.Add(1) == 3 { // the first one to the second broker
			return nil, errors.New("closed by the test"), true
		}
		return nil, nil, false
	})
	ranges, _ := readAll(t, k.Cluster, "t")
	var partitions []int32
	for _, offsets := range ranges {
		partitions = append(partitions, offsets.Partition)
	}
	if !slices.Equal(partitions, []int32{0, 1, 2, 3, 4, 5, 6, 7}) || asked.Load() < 4 {
		t.Errorf("spans of the partitions %v after %d requests", partitions, asked.Load())
	}
}

// readRange reads a range of a topic.
func readRange(tb testing.TB, k *kafkatest.Cluster, topic string, offsets sink.OffsetRange) (records []sink.StoredRecord) {
	tb.Helper()
	r, err := Config{Brokers: k.Addrs}.OpenReader(sinktest.NewJournal().Logger())
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	if err := r.Read(sinktest.Context(tb), topic, offsets, func(rec *sink.StoredRecord) error {
		records = append(records, *rec)
		return nil
	}); err != nil {
		tb.Error(err)
	}
	return records
}

// Records of aborted and open transactions are not read, whatever stands between them.
func TestDeadLettersReadCommittedRecords(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := k.Topic(t, 1, nil)
		ctx := sinktest.Context(t)
		transactional := func() *kgo.Client {
			return k.Client(t, kgo.TransactionalID(kafkatest.UniqueName(t)), kgo.DefaultProduceTopic(topic))
		}
		one, other, plain := transactional(), transactional(), k.Client(t, kgo.DefaultProduceTopic(topic))
		begin := func(c *kgo.Client) {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
		}
		send := func(c *kgo.Client, value string) {
			if err := c.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		end := func(c *kgo.Client, how kgo.TransactionEndTry) {
			if err := c.EndTransaction(ctx, how); err != nil {
				t.Fatal(err)
			}
		}
		begin(one)
		begin(other)
		send(one, "aborted 1")
		send(plain, "1")
		send(other, "2")
		send(one, "aborted 2")
		end(one, kgo.TryAbort)
		begin(one)
		send(one, "3")
		send(other, "4")
		end(one, kgo.TryCommit)
		end(other, kgo.TryCommit)
		begin(other)
		send(other, "aborted 3")
		end(other, kgo.TryAbort)
		send(plain, "5")
		begin(one)
		send(one, "open")
		send(plain, "after an open transaction")

		const stable = 12 // eight records, four markers, which brokers write after the response
		var ranges []sink.OffsetRange
		var records []sink.StoredRecord
		testwait.For(t, "the markers", func() bool {
			ranges, records = readAll(t, k, topic)
			return ranges[0].End >= stable
		})
		var got []string
		for _, rec := range records {
			got = append(got, string(rec.Value))
		}
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if ranges[0].End != stable {
			t.Errorf("the topic ends at %d, want %d", ranges[0].End, stable)
		}
		// A reader that starts within an aborted transaction leaves out the rest of it.
		for begin := range ranges[0].End {
			want := 0
			for _, rec := range records {
				if rec.Offset >= begin {
					want++
				}
			}
			if got := readRange(t, k, topic, sink.OffsetRange{Begin: begin, End: ranges[0].End}); len(got) != want {
				t.Errorf("from offset %d: %d records, want %d", begin, len(got), want)
			}
		}
		end(one, kgo.TryCommit)
	})
}

// Reading goes on over many fetches, and ends where its range does or its caller wants.
func TestDeadLettersReadManyFetches(t *testing.T) {
	k := kafkatest.Fake(t)
	topic := k.Topic(t, 1, nil)
	const n = 3000
	client := k.Client(t)
	for i := range n {
		client.Produce(sinktest.Context(t), &kgo.Record{Topic: topic, Value: fmt.Appendf(make([]byte, 1000), "%d", i)}, nil)
	}
	if err := client.Flush(sinktest.Context(t)); err != nil {
		t.Fatal(err)
	}
	r, err := Config{Brokers: k.Addrs}.OpenDeadLetters(sinktest.Context(t), topic, sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := int64(10)
	if err := r.Read(sinktest.Context(t), sink.OffsetRange{Partition: 0, Begin: next, End: n - 10}, func(rec *sink.StoredRecord) error {
		if rec.Offset != next {
			return fmt.Errorf("offset %d, want %d", rec.Offset, next)
		}
		next++
		return nil
	}); err != nil || next != n-10 {
		t.Errorf("read up to %d: %v", next, err)
	}
}

func TestDeadLettersOpenErrors(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	if _, err := (Config{Brokers: k.Addrs, CreateTopics: &TopicSpec{}}).OpenDeadLetters(sinktest.Context(t), "nobody", sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrMissing) {
		t.Errorf("a missing topic: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := (Config{Brokers: []string{"127.0.0.1:1"}}).OpenDeadLetters(ctx, "nobody", sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrUnreachable) {
		t.Errorf("no broker: %v", err)
	}
}

// To read takes the rights to Describe and Read, and none to write; a refusal comes at once.
func TestDeadLettersNeedDescribeAndRead(t *testing.T) {
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
	if err := admin.ProduceSync(sinktest.Context(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx := sinktest.Context(t)
	read := func(user, secret string) error {
		r, err := Config{Brokers: k.Addrs, SASL: login("PLAIN", user, secret)}.OpenDeadLetters(ctx, "t", sinktest.NewJournal().Logger())
		if err != nil {
			return err
		}
		defer r.Close()
		ranges, err := r.OffsetRanges(ctx)
		if err != nil {
			return err
		}
		return r.Read(ctx, ranges[0], func(*sink.StoredRecord) error { return nil })
	}
	if err := read("reader", password); err != nil {
		t.Errorf("who may read: %v", err)
	}
	for user, secret := range map[string]string{"watcher": password, "nobody": password, "reader": "wrong"} {
		if err := read(user, secret); !errors.Is(err, sink.ErrAccess) || ctx.Err() != nil { // a retry would go on until ctx ends
			t.Errorf("%s: %v; %v", user, err, ctx.Err())
		}
	}
}

// A topic that does not take positions stalls the Sink, although every record is acknowledged: what is
// acknowledged cannot be confirmed.
func TestPositionTopicThatRefusesIsAStall(t *testing.T) {
	for name, tc := range map[string]struct {
		fault kfake.Fault
		use   func(ctx context.Context, s *positionStore, o *owner) error
	}{
		"writes": {
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1},
			func(ctx context.Context, _ *positionStore, o *owner) error {
				return o.Write(ctx, sink.PositionKey, []byte("1"))
			},
		},
		"reads": {
			kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets, kmsg.Fetch}, Err: kerr.LeaderNotAvailable, Count: -1},
			func(ctx context.Context, s *positionStore, _ *owner) error { _, err := s.Read(ctx); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
			j := sinktest.NewJournal()
			c := openClient(t, Config{Brokers: k.Addrs}, j.Logger())
			s, err := c.openPositions(sinktest.Context(t), "positions", "key")
			if err != nil {
				t.Fatal(err)
			}
			o := own(t, s)
			if stat := c.Stat(); !stat.StalledSince.IsZero() || stat.StallReason != "" {
				t.Errorf("stalled since %s before anything fails: %s", stat.StalledSince, stat.StallReason)
			}
			began := time.Now()
			fault := k.Control.Fault(tc.fault)
			ctx, cancel := context.WithCancel(sinktest.Context(t))
			used := make(chan error, 1)
			go func() { used <- tc.use(ctx, s, o) }()
			if err := fault.Wait(ctx, 3); err != nil {
				t.Fatal(err)
			}
			if stat := c.Stat(); stat.StalledSince.Before(began) || stat.StalledSince.After(time.Now()) {
				t.Errorf("stalled since %s, tried since %s", stat.StalledSince, began)
			}
			if stat := c.Stat(); !strings.HasPrefix(stat.StallReason, "position topic positions: "+tc.fault.Err.Message) || !strings.Contains(stat.LastError, tc.fault.Err.Message) {
				t.Errorf("reason %q, last error %q", stat.StallReason, stat.LastError)
			}
			fault.Remove()
			cancel()
			<-used
			write(t, o, "2")
			wantValue(t, s, "2")
			if stat := c.Stat(); !stat.StalledSince.IsZero() {
				t.Errorf("still stalled since %s: %s", stat.StalledSince, stat.StallReason)
			}
		})
	}
}

// OffsetRanges retries every request that gets no response, also those for the metadata.
func TestOffsetRangesRetryMetadata(t *testing.T) {
	for first := range 3 {
		k := kafkatest.Fake(t, kfake.SeedTopics(1, "t"))
		r, err := Config{Brokers: k.Addrs}.OpenReader(sinktest.NewJournal().Logger())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var asked atomic.Int64
		k.Control.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.Control.KeepControl()
			if n := int(asked.Add(1)) - 1; n >= first && n < first+6 { // one attempt may use several connections
				return nil, errors.New("closed by the test"), true
			}
			return nil, nil, false
		})
		ranges, err := r.OffsetRanges(sinktest.Context(t), "t")
		if err != nil || len(ranges["t"]) != 1 {
			t.Errorf("from request %d on: %v, %v", first, ranges, err)
		}
	}
}
