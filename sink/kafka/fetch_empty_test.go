package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// emptied returns a batch from first to last whose records compaction has removed.
func emptied(first, last int64) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: first, Magic: 2, LastOffsetDelta: int32(last - first), FirstTimestamp: 1, MaxTimestamp: 1, ProducerID: 1, Records: []byte{},
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// A broker may answer a Fetch without records and without an error, and compaction may leave batches without records. Read goes
// on behind them, and does not take either for the end of the partition.
func TestReadGoesOnBehindEmptyAnswers(t *testing.T) {
	const n = 10
	tail := emptied(6, 8)[:60]
	for name, test := range map[string]struct {
		batches []byte
		times   int
		first   int64 // record that Read returns
	}{
		"nothing yet":                        {[]byte{}, 1, 0},
		"nothing for long":                   {[]byte{}, 2 * maxEmpty, 0},
		"an emptied batch":                   {emptied(0, 5), 1, 6},
		"several emptied batches":            {slices.Concat(emptied(0, 2), emptied(4, 5)), 1, 6},
		"an emptied batch before a cut one":  {slices.Concat(emptied(0, 5), tail), 1, 6},
		"an emptied batch before a cut head": {slices.Concat(emptied(0, 5), tail[:20]), 1, 6},
		"emptied up to the end":              {emptied(0, n-1), 1, n},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := kafkatest.Fake(t)
			topic := fake.Topic(t, 1, nil)
			cl := fake.Client(t, kgo.DefaultProduceTopic(topic))
			for range n {
				if err := cl.ProduceSync(t.Context(), kgo.StringRecord("record")).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			reader, err := Config{Brokers: fake.Addrs}.OpenReader(sinktest.NewJournal().Logger())
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			ranges, err := reader.OffsetRanges(sinktest.Context(t), topic)
			if err != nil {
				t.Fatal(err)
			}
			left := test.times
			fake.Control.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.Control.KeepControl()
				if left--; left < 0 {
					return nil, nil, false
				}
				f := req.(*kmsg.FetchRequest)
				part := kmsg.NewFetchResponseTopicPartition()
				part.HighWatermark, part.LastStableOffset, part.RecordBatches = n, n, test.batches
				ofTopic := kmsg.NewFetchResponseTopic()
				ofTopic.Topic, ofTopic.TopicID = f.Topics[0].Topic, f.Topics[0].TopicID
				ofTopic.Partitions = append(ofTopic.Partitions, part)
				res := kmsg.NewPtrFetchResponse()
				res.Version, res.Topics = f.Version, append(res.Topics, ofTopic)
				return res, nil, true
			})
			var got []int64
			err = reader.Read(sinktest.Context(t), topic, ranges[topic][0], func(r *sink.StoredRecord) error {
				got = append(got, r.Offset)
				return nil
			})
			if err != nil || len(got) != int(n-test.first) || len(got) > 0 && got[0] != test.first {
				t.Errorf("read %v, %v; want %d to %d", got, err, test.first, n-1)
			}
		})
	}
}
