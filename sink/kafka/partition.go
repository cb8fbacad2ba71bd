package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// A partState is what a partition waits for. It changes under producer.mu only.
type partState uint8

const (
	idle           partState = iota // has nothing to send
	ready                           // has, and is in its sender's queue
	inFlight                        // its first batch is in a request in flight
	awaitingLeader                  // its leader is looked up at retryAt; it is in producer.retrying
)

// A partition is one partition of a topic as a producer sees it. Without records it holds no
// memory but itself. All fields belong to producer.mu.
type partition struct {
	topic        *topic
	id           int32
	state        partState
	sender       *sender  // of the leader's broker, as far as is known; nil before the first time
	queue        []*batch // in order; only the first may have a sequence, only the last is open
	nextSequence int32    // sequence of the next batch that gets one
	hintedLeader int32    // leader named by the last answer, or noLeader

	// inRequest is true while a batch of the partition is in a request that is being built
	// or is unanswered. A second batch would replace the first one there, unnoticed.
	inRequest bool

	// silentSince is when the first of the latest unanswered attempts started. Zero: sender's
	// broker answered the last one.
	silentSince time.Time

	retryState
}

// noteAnswer records whether the broker answered an attempt that started at start.
func (part *partition) noteAnswer(ok bool, start time.Time) {
	switch {
	case ok:
		part.silentSince = time.Time{}
	case part.silentSince.IsZero():
		part.silentSince = start
	}
}

// openBatch returns the batch that one more record of the given shape fits into, or nil.
func (part *partition) openBatch(s *shape, ms int64) *batch {
	if n := len(part.queue); n > 0 {
		if b := part.queue[n-1]; b.fitsRecord(s, ms, part.topic.batchLimit) {
			return b
		}
	}
	return nil
}

// removeBatch removes the first batch from the queue.
func (part *partition) removeBatch() {
	n := copy(part.queue, part.queue[1:])
	part.queue[n] = nil
	part.queue = part.queue[:n]
}

// addSequence returns the sequence after n records from seq on: they wrap from 2³¹-1 to 0.
func addSequence(seq int32, n int) int32 {
	return int32((int64(seq) + int64(n)) & 0x7fffffff)
}

// A topic is one topic as a producer sees it. All fields belong to producer.mu.
type topic struct {
	name     string
	counters *topicCounters // nil while parts is
	index    int            // of the topics of this producer, to spread partitions over connections

	parts           []*partition // nil: not known yet
	id              sarama.Uuid  // changes when the topic is re-created; zero: the cluster gives none
	limit           int          // max.message.bytes
	limitGuessed    bool         // limit is a guess: the broker decides about larger records
	batchLimit      int          // the largest batch of several records
	unacked         int          // records in parts
	stickyPartition int32        // where records without a key go while a batch is open there

	// While resolving is true, every record of the topic goes to unassigned: the topic has not
	// been looked up yet (parts is nil), or it has another number of partitions and is not drained
	// under the old one, or a record did not fit, so that limit and parts may be out of date
	// (metadataStale).
	resolving     bool
	metadataStale bool
	resizeTo      int // 0: the number of parts is right
	unassigned    frames
	missing       missingState

	errorLogged      bool // that somebody has to act has been logged
	recoveryUnlogged bool // an error has been logged, and not that the topic accepts records
	creationLogged   bool // that this process created it has been logged
	restampLogged    bool // that it rejects the timestamps of records has been logged
	retryState
}

// addPartitions adds partitions to t until there are n.
func (t *topic) addPartitions(n int) {
	block := make([]partition, n-len(t.parts))
	for i := range block {
		block[i] = partition{topic: t, id: int32(len(t.parts)), hintedLeader: noLeader}
		t.parts = append(t.parts, &block[i])
	}
}

// setLimit sets the limits that follow from max.message.bytes. Compression may make a batch
// that does not compress a little larger, hence the slack.
func (t *topic) setLimit(info topicInfo, compressed bool) {
	t.limit, t.limitGuessed = info.limit, info.limitGuessed
	t.batchLimit = min(t.limit, maxBatchBytes)
	if compressed {
		t.batchLimit -= t.batchLimit/64 + 64
	}
}
