package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errNoAnswer: a response without a result for a partition of the request.
var errNoAnswer = errors.New("the broker's response has no result for the partition")

// corruptLimit is how often in a row a broker may report a batch as corrupt, each time over a new
// connection, before the producer looks for an invalid record in it.
const corruptLimit = 3

// handleAnswer completes the request in flight with the broker's response, or with the error if there is
// none. It runs on the reader goroutine of the connection, or on that of the sender if the request was not
// written.
func (s *sender) handleAnswer(res *sarama.ProduceResponse, err error) {
	p := s.producer
	took := time.Since(s.lastUsed)
	example := ""
	s.acked = s.acked[:0]
	for i := range s.batches {
		sh := &s.batches[i]
		sh.classifyAnswer(res, err)
		if sh.class != accepted {
			continue
		}
		before := len(s.acked)
		s.acked = sh.batch.appendSeqs(s.acked)
		if p.cfg.Delivered != nil {
			example = cmp.Or(example, s.reportDelivery(sh, s.acked[before:]))
		}
	}
	if p.cfg.Answered != nil && res != nil {
		p.cfg.Answered(took, example)
	}
	// Report outcomes before updating the window: when no record is unacknowledged, every
	// outcome must have been reported.
	p.reportOutcomes(s.acked, nil)

	p.mu.Lock()
	jitter := rand.Float64()
	for i := range s.batches {
		p.applyOutcome(s, &s.batches[i], jitter)
	}
	if res != nil {
		p.learnLeaders(res)
		s.answeredAt = time.Now()
		s.throttledUntil = s.answeredAt.Add(res.ThrottleTime)
		if silence := p.silences[s.node]; silence != nil && !silence.ended() {
			signal(p.wakeMonitor)
		}
	}
	s.broken = s.broken || err != nil
	s.busy, s.waitingSince = false, time.Time{}
	p.requestsInFlight--
	if p.identityLost && p.requestsInFlight == 0 {
		signal(p.wakeOwner)
	}
	p.stopRunIfDone()
	signal(p.windowFreed)
	signal(s.wake)
	p.unlockAndReport()
}

// reportDelivery calls Delivered for the records of a batch, and returns its example.
func (s *sender) reportDelivery(sh *sentBatch, seqs []uint64) (example string) {
	return s.producer.cfg.Delivered(sink.Delivery{
		Topic: sh.part.topic.name, Partition: sh.part.id, Offset: sh.block.Offset, Broker: s.link.addr, Seqs: seqs,
	})
}

// classifyAnswer sets the class and the error of the batch from the response to its request.
func (sh *sentBatch) classifyAnswer(res *sarama.ProduceResponse, err error) {
	sh.block = nil
	if err != nil {
		sh.class, sh.err = classifyRequest(err), inOurWords(err)
		return
	}
	sh.block = res.GetBlock(sh.part.topic.name, sh.part.id)
	if sh.block == nil {
		sh.class, sh.err = retriable, errNoAnswer
		return
	}
	sh.class, sh.err = classify(sh.block.Err), nil
	if sh.class == accepted {
		return
	}
	sh.err = errorSaying(sh.block.Err, brokerText(sh.block))
}

// brokerText returns the broker's message about a batch. It prefers the message about the first record that
// the broker names, which is the reason once that record is alone in its batch.
func brokerText(block *sarama.ProduceResponseBlock) string {
	if len(block.RecordErrors) > 0 && block.RecordErrors[0].BatchIndexErrorMessage != nil {
		return *block.RecordErrors[0].BatchIndexErrorMessage
	}
	return textOf(block.ErrorMessage)
}

// applyOutcome acknowledges, retries or rejects a batch, depending on its class. p.mu is held.
func (p *producer) applyOutcome(s *sender, sh *sentBatch, jitter float64) {
	part, b := sh.part, sh.batch
	part.inRequest = false
	if p.ownership != nil && sh.block != nil && sh.block.Err == sarama.ErrInvalidTxnState {
		// It is the empty transaction with which the owner fences other partitions, and is about to end: some brokers do not tell the
		// partitions of a producer apart.
		sh.class = retriable
	}
	if sh.class == unsent {
		p.takeBack(sh)
		return
	}
	part.noteAnswer(sh.block != nil, s.waitingSince)
	if sh.class != corruptBatch {
		b.corruptAnswers = 0
	}
	switch sh.class {
	case accepted:
		p.acknowledgeBatch(part, b)
	case retriable, unknownTopic, accessDenied:
		if sh.block != nil {
			p.logTopicError(part.topic, sh.block.Err)
			if l := sh.block.CurrentLeader; l != nil && p.client.cluster.learnLeader(part.topic.name, part.id, leader{l.LeaderID, l.LeaderEpoch}) {
				part.hintedLeader = l.LeaderID
			}
		}
		p.retryBatch(part, sh.class, sh.err, s.waitingSince, jitter)
	case corruptBatch:
		s.broken = true
		if b.corruptAnswers++; b.corruptAnswers >= corruptLimit {
			p.isolateRecord(part, b, sh)
			return
		}
		p.retryBatch(part, sh.class, sh.err, s.waitingSince, jitter)
	case invalidRecord:
		if !p.restampBatch(part, b, sh) {
			p.isolateRecord(part, b, sh)
		}
	case producerLost, superseded:
		p.loseIdentity(part, sh)
		p.retryBatch(part, sh.class, sh.err, s.waitingSince, jitter)
	case fatal, unexpected:
		p.stopSending(fmt.Errorf("%w: topic %s, partition %d: %w", errFatal, part.topic.name, part.id, sh.err))
	case unsent: // handled by takeBack above
	}
}

// takeBack makes a batch ready again whose request was not completed, so that no broker has it. p.mu is
// held.
func (p *producer) takeBack(sh *sentBatch) {
	part, b := sh.part, sh.batch
	if sh.first {
		part.nextSequence, b.sequence, b.sent = b.sequence, noSequence, false
	}
	if p.failure != nil {
		p.dropUnsent()
	}
	if len(part.queue) > 0 {
		p.makeReady(part)
	}
}

// acknowledgeBatch removes a batch that the broker has stored. p.mu is held.
func (p *producer) acknowledgeBatch(part *partition, b *batch) {
	t := part.topic
	t.counters.records.Add(int64(b.records))
	t.counters.bytes.Add(int64(b.payload))
	t.unacked -= b.records
	t.errorLogged = false
	p.logTopicRecovery(t)
	p.identityAccepted = true
	p.releaseWindow(b.records, b.payload)
	if p.contested > 0 {
		p.contested -= p.countContested(&b.frames)
	}
	p.removeBatch(part, 0)
	part.state = idle
	if part.attempts > 0 {
		part.retryState = retryState{}
		delete(p.retrying, part)
		if len(p.retrying) == 0 {
			signal(p.wakeMonitor)
		}
	}
	if len(part.queue) > 0 {
		p.makeReady(part)
	} else if t.resizeTo > 0 && t.drained() {
		signal(p.wakeControl)
	}
}

// retryBatch schedules a look-up of part's leader, after which the first batch is resent. p.mu is held.
func (p *producer) retryBatch(part *partition, c class, err error, start time.Time, jitter float64) {
	p.client.counters.retries.Add(1)
	p.client.counters.recordError("topic " + part.topic.name + ", partition " + strconv.Itoa(int(part.id)) + ": " + err.Error())
	part.recordFailure(err, start, time.Now(), jitter)
	switch {
	case c == accessDenied:
		part.retryAt = time.Now().Add(time.Duration(jitter * float64(backoffDenied)))
	case part.attempts == 1 && part.hintedLeader != noLeader:
		part.retryAt = time.Time{} // the response names the new leader
	}
	p.findLeader(part)
}

// learnLeaders stores the leaders that the response names. p.mu is held.
func (p *producer) learnLeaders(res *sarama.ProduceResponse) {
	for _, n := range res.NodeEndpoints {
		p.client.cluster.learnBroker(n.NodeID, net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))))
	}
}

// logTopicError logs an error that a person has to fix, once until the topic accepts records again. It
// ignores errors that only need a retry, and a missing topic that the producer creates. p.mu is held.
func (p *producer) logTopicError(t *topic, k sarama.KError) {
	c := classify(k)
	ours := c == unknownTopic && p.client.cfg.CreateTopics != nil
	if t.errorLogged || c != unknownTopic && c != accessDenied || ours || !p.mayLogMissing(t) {
		return
	}
	t.errorLogged, t.recoveryUnlogged = true, true
	err := errorOf(k)
	attrs := []slog.Attr{slog.String("topic", t.name), slog.Any("err", err)}
	fix := p.client.cfg.adviseRetry(t.name, err)
	if c == unknownTopic {
		fix = p.adviseMissing(t)
	}
	attrs = sink.WithFix(attrs, fix)
	p.logLater(func(ctx context.Context) {
		p.log.LogAttrs(ctx, slog.LevelError, "topic rejects records, retrying", attrs...)
	})
}

// logTopicRecovery logs that the topic accepts records again, if logTopicError has logged an error. p.mu is
// held.
func (p *producer) logTopicRecovery(t *topic) {
	if !t.recoveryUnlogged {
		return
	}
	t.recoveryUnlogged = false
	name := t.name
	p.logLater(func(ctx context.Context) {
		p.log.InfoContext(ctx, "topic accepts records", slog.String("topic", name))
	})
}
