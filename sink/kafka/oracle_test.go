package kafka

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// written holds the fields of a stored record that the test compares.
type written struct {
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []kgo.RecordHeader
	MS        int64
}

// logOf returns the stored records by partition, in order. The producer chooses the partition of a record without a
// key, so logOf returns those records separately, ordered by value.
func logOf(records []*kgo.Record) (keyed map[int32][]written, keyless []written) {
	keyed = make(map[int32][]written)
	for _, r := range records {
		w := written{r.Partition, r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli()}
		if r.Key == nil && !bytes.HasPrefix(r.Value, []byte("explicit")) {
			w.Partition = sink.AnyPartition
			keyless = append(keyless, w)
			continue
		}
		keyed[r.Partition] = append(keyed[r.Partition], w)
	}
	slices.SortFunc(keyless, func(a, b written) int {
		return cmp.Or(bytes.Compare(a.Value, b.Value), cmp.Compare(a.MS, b.MS), cmp.Compare(len(a.Headers), len(b.Headers)))
	})
	return keyed, keyless
}

// TestSameAsAsyncProducer writes the same records with sarama's own producer, and reads both topics with a client
// that shares no code with either.
func TestSameAsAsyncProducer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		partitioner string
		sarama      sarama.PartitionerConstructor
		compression string
		codec       sarama.CompressionCodec
	}{
		{"murmur2", sarama.NewMurmur2Partitioner, "none", sarama.CompressionNone},
		{"fnv1a", sarama.NewHashPartitioner, "gzip", sarama.CompressionGZIP},
		{"crc32", sarama.NewConsistentCRCHashPartitioner, "snappy", sarama.CompressionSnappy},
		{"murmur2", sarama.NewMurmur2Partitioner, "lz4", sarama.CompressionLZ4},
		{"murmur2", sarama.NewMurmur2Partitioner, "zstd", sarama.CompressionZSTD},
	} {
		t.Run(tc.partitioner+"/"+tc.compression, func(t *testing.T) {
			kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
				t.Helper()
				ours, theirs := k.Topic(t, 7, nil), k.Topic(t, 7, nil)
				rng := rand.New(rand.NewPCG(7, 8))
				var records []sink.Record
				for i := range 3000 {
					rec := randomRecord(rng, uint64(i+1))
					if rec.Key == nil {
						rec.Value = fmt.Appendf(nil, "keyless %d", i)
					}
					if rng.IntN(10) == 0 {
						rec.Partition = rng.Int32N(7)
						rec.Value = append([]byte("explicit"), rec.Value...)
					}
					records = append(records, rec)
				}
				r := newRig(t, Config{Brokers: k.Addrs, Partitioner: tc.partitioner, Compression: tc.compression})
				for _, rec := range records {
					rec.Topic = ours
					r.send(rec)
				}
				r.drain()
				cfg := asyncConfig()
				cfg.Producer.Compression = tc.codec
				cfg.Producer.Partitioner = explicitOr(tc.sarama)
				sendAsync(t, k.Addrs, cfg, theirs, records)

				gotKeyed, gotKeyless := logOf(k.ReadAll(t, ours))
				wantKeyed, wantKeyless := logOf(k.ReadAll(t, theirs))
				if !reflect.DeepEqual(wantKeyed, gotKeyed) { // formatting the difference is expensive
					t.Errorf("records with a key or a partition (-AsyncProducer +ours):\n%.4000s", gocmp.Diff(wantKeyed, gotKeyed))
				}
				if !reflect.DeepEqual(wantKeyless, gotKeyless) {
					t.Errorf("records without a key (-AsyncProducer +ours):\n%.4000s", gocmp.Diff(wantKeyless, gotKeyless))
				}
			})
		})
	}
}

func sendAsync(t *testing.T, addrs []string, cfg *sarama.Config, topic string, records []sink.Record) {
	t.Helper()
	p, err := sarama.NewAsyncProducer(addrs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan error, len(records))
	go func() { // ends at Close
		for range p.Successes() {
			outcomes <- nil
		}
	}()
	go func() { // ends at Close
		for err := range p.Errors() {
			outcomes <- err
		}
	}()
	for _, rec := range records {
		m := &sarama.ProducerMessage{Topic: topic, Partition: rec.Partition, Timestamp: rec.Timestamp}
		if rec.Key != nil {
			m.Key = sarama.ByteEncoder(rec.Key)
		}
		if rec.Value != nil {
			m.Value = sarama.ByteEncoder(rec.Value)
		}
		for _, h := range rec.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		p.Input() <- m
	}
	for range records { // before Close: it fails the messages that sarama would retry
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
	}
	p.AsyncClose()
}

// explicitOr gives a message's own partition precedence.
func explicitOr(next sarama.PartitionerConstructor) sarama.PartitionerConstructor {
	return func(topic string) sarama.Partitioner { return explicit{next(topic)} }
}

type explicit struct{ sarama.Partitioner }

func (e explicit) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	if m.Partition != sink.AnyPartition {
		return m.Partition, nil
	}
	return e.Partitioner.Partition(m, n)
}

// TestTimestampsHaveMilliseconds: a record keeps its own timestamp with millisecond precision. A record without one
// gets the current time.
func TestTimestampsHaveMilliseconds(t *testing.T) {
	k := kafkatest.Fake(t)
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	at := time.Date(2026, 3, 4, 5, 6, 7, 891_234_567, time.UTC)
	before := time.Now().Truncate(time.Millisecond)
	for _, ts := range []time.Time{at, at.Add(time.Hour), at.Add(-time.Hour), {}, time.Unix(-1, 0)} {
		rec := recordFor(topic, 0, "x")
		rec.Timestamp = ts
		r.send(rec)
	}
	r.drain()
	var got []time.Time
	for _, rec := range k.ReadAll(t, topic) {
		got = append(got, rec.Timestamp.UTC())
	}
	at = at.Truncate(time.Millisecond)
	if now := got[3]; now.Before(before) || now.After(time.Now()) {
		t.Errorf("a record without a timestamp is from %s", now)
	}
	got = slices.Delete(got, 3, 4)
	if diff := gocmp.Diff([]time.Time{at, at.Add(time.Hour), at.Add(-time.Hour), time.Unix(0, 0).UTC()}, got); diff != "" {
		t.Error(diff)
	}
}

// TestPartitionersAgreeWithSarama compares each partitioner with sarama's of the same kind.
func TestPartitionersAgreeWithSarama(t *testing.T) {
	for _, tc := range []struct {
		name string
		want sarama.PartitionerConstructor
	}{
		{"murmur2", sarama.NewMurmur2Partitioner},
		{"fnv1a", sarama.NewHashPartitioner},
		{"crc32", sarama.NewConsistentCRCHashPartitioner},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, err := partitionerOf(tc.name)
			if err != nil {
				t.Fatal(err)
			}
			theirs := tc.want("topic")
			rng := rand.New(rand.NewPCG(1, 2))
			for range 5000 {
				key := make([]byte, rng.IntN(70))
				for i := range key {
					key[i] = byte(rng.Uint32())
				}
				n := 1 + rng.Int32N(200)
				want, err := theirs.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
				if err != nil {
					t.Fatal(err)
				}
				if got := ours(key, n); got != want {
					t.Fatalf("key %x of %d partitions: %d, sarama says %d", key, n, got, want)
				}
			}
		})
	}
	if _, err := partitionerOf("random"); err == nil {
		t.Error("an unknown partitioner is accepted")
	}
}

// TestMurmur2AgreesWithJava compares with hashes that the Java client computed. testdata/murmur2.txt describes how
// to create the file.
func TestMurmur2AgreesWithJava(t *testing.T) {
	f, err := os.Open("testdata/murmur2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Fields(lines.Text())
		key, err := hex.DecodeString(strings.TrimPrefix(fields[0], "-"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strconv.Itoa(int(int32(murmur2(key)))); got != fields[1] {
			t.Errorf("murmur2(%x) = %s, want %s", key, got, fields[1])
		}
		if got := strconv.Itoa(int(byMurmur2(key, 12))); got != fields[2] {
			t.Errorf("partition of %x is %s, want %s", key, got, fields[2])
		}
		n++
	}
	if n < 200 {
		t.Fatalf("only %d keys in the corpus", n)
	}
}
