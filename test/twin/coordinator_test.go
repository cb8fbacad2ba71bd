package twin

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A transactional is a transactional id. Its epochs are durable. Every broker is its coordinator.
type transactional struct {
	id       int64
	epoch    int16
	added    []*partition // of the open transaction
	unmarked int          // markers of the last transaction that are not written yet
}

// markerDelay is the longest time until a marker is written, while its partition has a leader.
const markerDelay = 200 * time.Millisecond

func (k *cluster) findCoordinator(n *node, res *kmsg.FindCoordinatorResponse, f fate) {
	if f.err != nil {
		res.ErrorCode = kerr.CoordinatorNotAvailable.Code
		return
	}
	res.NodeID = int32(n.id)
	res.Host, res.Port = hostPort(n.addr)
}

// initProducer gives out the next epoch of a transactional id, or another producer id. The caller must hold mu.
func (k *cluster) initProducer(req *kmsg.InitProducerIDRequest, res *kmsg.InitProducerIDResponse, f fate) {
	res.ProducerID = -1
	if f.err != nil {
		res.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return
	}
	if req.TransactionalID == nil {
		k.producers++
		res.ProducerID = k.producers
		return
	}
	t := k.transactionals[*req.TransactionalID]
	if t == nil {
		k.producers++
		t = &transactional{id: k.producers, epoch: -1}
		k.transactionals[*req.TransactionalID] = t
	}
	if len(t.added) > 0 {
		k.endTransaction(t)
	}
	switch {
	case t.unmarked > 0:
		res.ErrorCode = kerr.ConcurrentTransactions.Code
	case req.ProducerID >= 0 && (req.ProducerID != t.id || req.ProducerEpoch != t.epoch):
		res.ErrorCode = kerr.ProducerFenced.Code
	default:
		t.epoch++
		res.ProducerID, res.ProducerEpoch = t.id, t.epoch
	}
}

// owner returns the transactional id of a producer, or an error code if it is not the newest one.
func (k *cluster) owner(name string, id int64, epoch int16) (*transactional, int16) {
	t := k.transactionals[name]
	switch {
	case t == nil || t.id != id:
		return nil, kerr.InvalidProducerIDMapping.Code
	case t.epoch != epoch:
		return nil, kerr.ProducerFenced.Code
	case t.unmarked > 0:
		return nil, kerr.ConcurrentTransactions.Code
	}
	return t, 0
}

// addPartitions adds partitions to a transaction. The caller must hold mu.
func (k *cluster) addPartitions(req *kmsg.AddPartitionsToTxnRequest, res *kmsg.AddPartitionsToTxnResponse, f fate) {
	t, code := k.owner(req.TransactionalID, req.ProducerID, req.ProducerEpoch)
	if f.err != nil {
		code = kerr.CoordinatorLoadInProgress.Code
	}
	for _, rt := range req.Topics {
		at := kmsg.NewAddPartitionsToTxnResponseTopic()
		at.Topic = rt.Topic
		for _, number := range rt.Partitions {
			ap := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			ap.Partition, ap.ErrorCode = number, code
			if code == 0 {
				t.added = append(t.added, k.topics[rt.Topic][number])
			}
			at.Partitions = append(at.Partitions, ap)
		}
		res.Topics = append(res.Topics, at)
	}
}

// endTxn aborts a transaction. The caller must hold mu.
func (k *cluster) endTxn(req *kmsg.EndTxnRequest, res *kmsg.EndTxnResponse, f fate) {
	t, code := k.owner(req.TransactionalID, req.ProducerID, req.ProducerEpoch)
	switch {
	case f.err != nil:
		res.ErrorCode = kerr.CoordinatorLoadInProgress.Code
	case code != 0:
		res.ErrorCode = code
	case req.Commit:
		k.history.violated("a transaction of %s is committed", req.TransactionalID)
	default:
		k.endTransaction(t)
	}
}

// endTransaction writes the markers, each after a while and when its partition has a leader. The caller must hold mu.
func (k *cluster) endTransaction(t *transactional) {
	for _, p := range slices.Compact(t.added) {
		t.unmarked++
		delay := time.Duration(k.rng.Int64N(int64(markerDelay)))
		k.net.serving.Go(func() {
			for done := false; !done; {
				time.Sleep(delay)
				k.mu.Lock()
				if done = p.leader != noLeader || k.over; done {
					k.mark(p, t.id, t.epoch)
					t.unmarked--
				}
				k.mu.Unlock()
			}
		})
	}
	t.added = nil
}

// mark writes the marker of an aborted transaction: the partition rejects lower epochs after it. The caller must hold mu.
func (k *cluster) mark(p *partition, id int64, epoch int16) {
	record := kmsg.Record{Key: []byte{0, 0, 0, 0}, Value: make([]byte, 6)} // version 0, type 0: abort
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{
		FirstOffset: p.end, PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x30, ProducerID: id, ProducerEpoch: epoch,
		FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil),
	}
	b.FirstTimestamp = time.Now().UnixMilli()
	b.MaxTimestamp = b.FirstTimestamp
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	raw = b.AppendTo(nil)
	binary.BigEndian.PutUint64(raw, uint64(p.end))
	p.batches = append(p.batches, stored{p.end, raw, ""})
	p.end++
	if s := p.states[id]; s == nil || s.epoch < epoch {
		p.states[id] = &producerState{epoch: epoch}
	}
}
