package soak

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeWeights are the attacks that need no broker of its own process.
func fakeWeights() map[Attack]int {
	weights := DefaultWeights()
	delete(weights, BrokerKill)
	delete(weights, BrokerShutdown)
	delete(weights, BrokerPause)
	return weights
}

// onProduce has f called with every produce request before kfake handles it.
func onProduce(fake *kfake.Cluster, f func(*kmsg.ProduceRequest) (kmsg.Response, bool)) {
	fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		res, handled := f(req.(*kmsg.ProduceRequest))
		return res, nil, handled
	})
}

// stampBatches gives each batch the time at which kfake gets it, as a broker does by the
// topic's message.timestamp.type. (kfake itself goes by a bit of the batch, and forgets the
// checksum.) Records that were made at different times keep their distances.
func stampBatches(fake *kfake.Cluster) {
	const ( // where in a batch: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, …
		checksum = 17
		covered  = 21 // by the checksum, to the end
		first    = 27
		latest   = 35
	)
	onProduce(fake, func(req *kmsg.ProduceRequest) (kmsg.Response, bool) {
		now := time.Now().UnixMilli()
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				b := p.Records
				span := binary.BigEndian.Uint64(b[latest:]) - binary.BigEndian.Uint64(b[first:])
				binary.BigEndian.PutUint64(b[first:], uint64(now)-span)
				binary.BigEndian.PutUint64(b[latest:], uint64(now))
				binary.BigEndian.PutUint32(b[checksum:], crc32.Checksum(b[covered:], crc32.MakeTable(crc32.Castagnoli)))
			}
		}
		return nil, false
	})
}
