package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// A partState says who a partition waits for. It changes under producer.mu only.
type partState uint8

const (
	idle     partState = iota // has nothing to send
	ready                     // has, and is on its sender's list
	inFlight                  // its first batch is in an unanswered request
	troubled                  // waits for its time to be placed again; producer.trouble holds it
)

// A partition is one partition of a topic as a producer sees it. Without records it holds no
// memory but itself. All fields belong to producer.mu.
type partition struct {
	topic  *topic
	id     int32
	state  partState
	sender *sender  // of the leader's broker, as far as is known; nil before the first time
	queue  []*batch // in order; only the first may have a sequence, only the last is open
	next   int32    // sequence of the next batch that gets one
	hint   int32    // leader named by the last answer, or noLeader

	// inRequest is true while a batch of the partition is in a request that is being built
	// or is unanswered. A second batch would replace the first one there, unnoticed.
	inRequest bool

	// silent is when the first of the latest attempts began that sender's broker has given
	// no answer to. Zero: it answered the last one.
	silent time.Time

	trouble
}

// answered notes whether there was an answer to an attempt that began at start.
func (part *partition) answered(ok bool, start time.Time) {
	switch {
	case ok:
		part.silent = time.Time{}
	case part.silent.IsZero():
		part.silent = start
	}
}

// trouble is how long something has not gone well, and why.
type trouble struct {
	attempts int       // failed ones since the last success
	since    time.Time // start of the first failed attempt
	due      time.Time // when to try again
	cause    error
}

// struck notes one more failure of an attempt that began at start.
func (t *trouble) struck(cause error, start, now time.Time, luck float64) {
	if t.attempts == 0 {
		t.since = start
	}
	t.due = now.Add(backoff(t.attempts, luck))
	t.attempts++
	t.cause = cause
}

// open returns the batch that takes one more record of the given shape, or nil.
func (part *partition) open(s *shape, ms int64) *batch {
	if n := len(part.queue); n > 0 {
		if b := part.queue[n-1]; b.takes(s, ms, part.topic.batchLimit) {
			return b
		}
	}
	return nil
}

// pop removes the first batch.
func (part *partition) pop() {
	n := copy(part.queue, part.queue[1:])
	part.queue[n] = nil
	part.queue = part.queue[:n]
}

// nextSequence returns the sequence after n records from seq on: they wrap from 2³¹-1 to 0.
func nextSequence(seq int32, n int) int32 {
	return int32((int64(seq) + int64(n)) & 0x7fffffff)
}

// A topic is one topic as a producer sees it. All fields belong to producer.mu.
type topic struct {
	name     string
	counters *topicCounters
	number   int // of the topics of this producer, to spread partitions over connections

	parts      []*partition // nil: not known yet
	id         sarama.Uuid  // changes when the topic is created anew; zero: the cluster gives none
	limit      int          // max.message.bytes
	guessed    bool         // limit is a guess: the broker judges what is beyond it
	batchLimit int          // the largest batch of several records
	unacked    int          // records in parts
	sticky     int32        // where records without a key go while a batch is open there

	// held are records that cannot be given to a partition now: the topic is not known yet
	// (parts is nil), or has another number of partitions and is not settled under the old
	// one, or a record made it doubtful whether limit and parts are up to date (recheck).
	// While hold is true, every record of the topic goes here.
	hold     bool
	recheck  bool
	resizeTo int // 0: the number of parts is right
	held     frames

	refused   bool // that it needs somebody to act has been logged
	created   bool // that we have created it has been logged
	restamped bool // that it does not take the timestamps of records has been logged
	trouble
}

// grow gives t as many partitions as n says. Those it has stay what they are.
func (t *topic) grow(n int) {
	block := make([]partition, n-len(t.parts))
	for i := range block {
		block[i] = partition{topic: t, id: int32(len(t.parts)), hint: noLeader}
		t.parts = append(t.parts, &block[i])
	}
}

// setLimit sets the limits that follow from max.message.bytes. Compression may make a batch
// that does not compress a little larger, hence the slack.
func (t *topic) setLimit(info topicInfo, compressed bool) {
	t.limit, t.guessed = info.limit, info.guessed
	t.batchLimit = min(t.limit, maxBatchBytes)
	if compressed {
		t.batchLimit -= t.batchLimit/64 + 64
	}
}
