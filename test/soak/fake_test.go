package soak

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// onProduce has f called with every produce request before kfake handles it.
func onProduce(fake *kafkatest.FakeCluster, f func(*kmsg.ProduceRequest) (kmsg.Response, bool)) {
	fake.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.Control.KeepControl()
		res, handled := f(req.(*kmsg.ProduceRequest))
		return res, nil, handled
	})
}

// Where in a batch: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, …
const (
	batchChecksum = 17
	batchCovered  = 21 // by the checksum, to the end; it begins with the attributes
	batchFirst    = 27
	batchLatest   = 35
	batchProducer = 43
	batchEpoch    = 51
	batchCount    = 57
)

// rewrite calls f to change each batch of a request, and corrects the checksums.
func rewrite(req *kmsg.ProduceRequest, f func(batch []byte)) {
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			b := p.Records
			f(b)
			binary.BigEndian.PutUint32(b[batchChecksum:], crc32.Checksum(b[batchCovered:], crc32.MakeTable(crc32.Castagnoli)))
		}
	}
}

// stampBatches gives each batch the time at which kfake gets it, as a broker does by the
// topic's message.timestamp.type. (kfake itself goes by a bit of the batch, and forgets the
// checksum.) Records that were made at different times keep their distances.
func stampBatches(fake *kafkatest.FakeCluster) {
	onProduce(fake, func(req *kmsg.ProduceRequest) (kmsg.Response, bool) {
		now := time.Now().UnixMilli()
		rewrite(req, func(b []byte) {
			lasted := binary.BigEndian.Uint64(b[batchLatest:]) - binary.BigEndian.Uint64(b[batchFirst:])
			binary.BigEndian.PutUint64(b[batchFirst:], uint64(now)-lasted)
			binary.BigEndian.PutUint64(b[batchLatest:], uint64(now))
		})
		return nil, false
	})
}

// positionsOf returns the part of a request that is for the position topic. The batches are those of req.
func positionsOf(req *kmsg.ProduceRequest) *kmsg.ProduceRequest {
	part := *req
	part.Topics = slices.DeleteFunc(slices.Clone(req.Topics), func(t kmsg.ProduceRequestTopic) bool { return t.Topic != position.DefaultTopic })
	return &part
}

// late delays one produce request in thirty, so that it may arrive after those of a newer relay.
func late(fake *kafkatest.FakeCluster) {
	onProduce(fake, func(*kmsg.ProduceRequest) (kmsg.Response, bool) {
		if rand.IntN(30) == 0 {
			fake.SleepControl(func() { time.Sleep(time.Second) })
		}
		return nil, false
	})
}

// ownProducers gives each epoch of a producer its own id, as if a relay requested a new one for each
// claim, so that the broker cannot tell which one is newer. Some requests are delayed.
func ownProducers(fake *kafkatest.FakeCluster) {
	onProduce(fake, func(req *kmsg.ProduceRequest) (kmsg.Response, bool) {
		rewrite(req, func(b []byte) {
			id, epoch := binary.BigEndian.Uint64(b[batchProducer:]), binary.BigEndian.Uint16(b[batchEpoch:])
			binary.BigEndian.PutUint64(b[batchProducer:], id+uint64(epoch)<<32)
			binary.BigEndian.PutUint16(b[batchEpoch:], 0)
		})
		return nil, false
	})
	late(fake)
}
