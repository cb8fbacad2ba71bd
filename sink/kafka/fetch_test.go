package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	testwait "github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A foreignTransaction is a transaction of another producer.
type foreignTransaction struct {
	*testing.T
	client *kgo.Client
}

func beginTransaction(t *testing.T, k *kafkatest.Cluster, id string) *foreignTransaction {
	t.Helper()
	cl := k.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	return &foreignTransaction{t, cl}
}

func (f *foreignTransaction) write(topic, key, value string) {
	f.Helper()
	if err := f.client.ProduceSync(f.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
		f.Fatal(err)
	}
}

func (f *foreignTransaction) end(how kgo.TransactionEndTry) {
	f.Helper()
	if err := f.client.EndTransaction(f.Context(), how); err != nil {
		f.Fatal(err)
	}
}

// TestReadingAroundTransactions: what another program writes in transactions is no value, whether it commits them or
// not, and delays none. Dead letters are those that a consumer with read_committed sees.
func TestReadingAroundTransactions(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := k.Topic(t, 1, nil)
		s, j := openPositions(t, k, topic, "key")
		deadLetters, err := (Config{Brokers: k.Addrs}).OpenDeadLetters(sinktest.Context(t), topic, j.Logger())
		if err != nil {
			t.Fatal(err)
		}
		defer deadLetters.Close()
		readDeadLetters := func() (got []string) {
			t.Helper()
			ranges, err := deadLetters.OffsetRanges(sinktest.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			err = deadLetters.Read(sinktest.Context(t), ranges[0], func(r *sink.StoredRecord) error {
				got = append(got, string(r.Value))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		wantNoDeadLetters := func() {
			t.Helper()
			if got := readDeadLetters(); len(got) > 0 {
				t.Errorf("dead letters %q of open transactions", got)
			}
		}
		own := "key/" + firstKey
		aborted := beginTransaction(t, k, topic+"-aborted")
		aborted.write(topic, own, "aborted")
		committed := beginTransaction(t, k, topic+"-committed")
		committed.write(topic, own, "committed")
		wantValues(t, s)
		wantNoDeadLetters()
		post(t, s, secondKey, []byte("plain"))
		wantValues(t, s, "plain")
		wantNoDeadLetters()
		committed.end(kgo.TryCommit)
		wantNoDeadLetters() // the other transaction is older and still open
		aborted.end(kgo.TryAbort)
		// Brokers write the control records after the response.
		testwait.For(t, "the dead letters", func() bool { return slices.Equal(readDeadLetters(), []string{"committed", "plain"}) })
		wantValues(t, s, "plain")
		again, _ := openPositions(t, k, topic, "key")
		wantValues(t, again, "plain")
	})
}

// TestOffsetRangesNameHiddenRecords: a range ends where the first open transaction begins, and says which records that hides.
func TestOffsetRangesNameHiddenRecords(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := k.Topic(t, 2, nil)
		plain := k.Client(t, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		write := func(partition int32) {
			t.Helper()
			if err := plain.ProduceSync(t.Context(), &kgo.Record{Partition: partition, Value: []byte("plain")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		ranges := func() []sink.OffsetRange {
			t.Helper()
			ranges, _ := readAll(t, k, topic)
			return ranges
		}
		write(0)
		write(1)
		open := beginTransaction(t, k, topic)
		open.write(topic, "key", "open") // to partition 0
		write(0)
		want := []sink.OffsetRange{{Partition: 0, End: 1, Hidden: 3}, {Partition: 1, End: 1}}
		if diff := cmp.Diff(want, ranges()); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		open.end(kgo.TryAbort)
		want = []sink.OffsetRange{{Partition: 0, End: 4}, {Partition: 1, End: 1}} // with the control record
		testwait.For(t, "the end of the transaction", func() bool { return cmp.Equal(want, ranges()) }, func() any { return ranges() })
	})
}
