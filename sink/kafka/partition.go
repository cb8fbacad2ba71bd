package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// A partState is the state of a partition. It changes with producer.mu held only.
type partState uint8

const (
	idle           partState = iota // it has no records
	ready                           // it has records and is in the queue of its sender
	unresumed                       // its first batch is contested; runOwner resumes it
	inFlight                        // its first batch is in a request in flight
	awaitingLeader                  // its leader is looked up at retryAt; it is in producer.retrying
)

// A partition is a partition of a topic in a producer. Without records, it uses no other memory. All fields are
// protected by producer.mu.
type partition struct {
	topic        *topic
	id           int32
	state        partState
	sender       *sender  // of the last known leader; nil: unknown so far
	queue        []*batch // in order; only the first may have a sequence, only the last is open
	nextSequence int32    // sequence of the next batch that gets one
	hintedLeader int32    // leader named by the last response, or noLeader

	passed uint8 // number of requests in a row that had no room for its first batch

	// inRequest is true while a batch of the partition is in a request that is being built or has no
	// response. A request must have only one batch per partition.
	inRequest bool

	resumed bool       // no earlier owner can write to it
	stored  *tailNames // of records that earlier owners have stored in it; nil: none, or no longer needed

	// silentSince is the start of the first attempt since the broker's last response. Zero: the broker
	// responded to the last attempt.
	silentSince time.Time

	retryState
}

// noteAnswer records whether the broker responded to an attempt that started at start.
func (part *partition) noteAnswer(ok bool, start time.Time) {
	switch {
	case ok:
		part.silentSince = time.Time{}
	case part.silentSince.IsZero():
		part.silentSince = start
	}
}

// allParts iterates over the partitions of all topics. p.mu is held.
func (p *producer) allParts(yield func(*partition) bool) {
	for _, t := range p.topics {
		for _, part := range t.parts {
			if !yield(part) {
				return
			}
		}
	}
}

// openBatch returns the open batch if a record of the given shape fits into it, otherwise nil.
func (part *partition) openBatch(s *shape, ms int64) *batch {
	if n := len(part.queue); n > 0 {
		if b := part.queue[n-1]; b.fitsRecord(s, ms, part.topic.batchLimit) {
			return b
		}
	}
	return nil
}

// addSequence returns seq + n. Sequences wrap from 2³¹-1 to 0.
func addSequence(seq int32, n int) int32 {
	return int32((int64(seq) + int64(n)) & 0x7fffffff)
}

// A topic is a topic in a producer. All fields are protected by producer.mu.
type topic struct {
	name     string
	counters *topicCounters // nil while parts is
	index    int            // index of the topic in this producer, to distribute partitions over connections

	parts           []*partition // nil: unknown so far
	id              sarama.Uuid  // changes when the topic is re-created; zero: the brokers are too old
	limit           int          // max.message.bytes
	limitGuessed    bool         // limit is a guess: the broker decides about larger records
	batchLimit      int          // maximum size of a batch of several records
	unacked         int          // number of records in parts
	stickyPartition int32        // partition for records without a key, while it has an open batch

	// While resolving is true, every record of the topic is added to unassigned: the topic was not
	// looked up yet (parts is nil), or the number of partitions has changed and the topic is not drained,
	// or a record did not fit, so that limit and parts may be out of date (metadataStale).
	resolving     bool
	metadataStale bool
	resizeTo      int // new number of partitions; 0: unchanged
	unassigned    frames
	missing       missingState

	notCreated       error // why the last attempt to create it failed
	errorLogged      bool  // an error that a person has to fix was logged
	recoveryUnlogged bool  // an error was logged, and its end was not
	creationLogged   bool  // the creation of the topic was logged
	restampLogged    bool  // the rejection of timestamps was logged
	retryState
}

// addPartitions adds partitions to t until it has n.
func (t *topic) addPartitions(n int) {
	block := make([]partition, n-len(t.parts))
	for i := range block {
		block[i] = partition{topic: t, id: int32(len(t.parts)), hintedLeader: noLeader}
		t.parts = append(t.parts, &block[i])
	}
}

// setLimit sets the limits that follow from max.message.bytes. It leaves some room, because compression may make
// an incompressible batch a little larger.
func (t *topic) setLimit(info topicInfo, compressed bool) {
	t.limit, t.limitGuessed = info.limit, info.limitGuessed
	t.batchLimit = min(t.limit, maxBatchBytes)
	if compressed {
		t.batchLimit -= t.batchLimit/64 + 64
	}
}
