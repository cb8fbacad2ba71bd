package kafka

import (
	"cmp"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errNoAnswer: an answer without a block for a partition that was asked about.
var errNoAnswer = errors.New("the broker's answer leaves the partition out")

// corruptLimit is how often in a row a batch is called corrupt, each time over a fresh
// connection, before a record in it is blamed.
const corruptLimit = 3

// answer settles the outstanding request: with the broker's answer, or with the error for
// the want of one. It runs on the reader goroutine of the connection, or on the sender's if
// the request was not written.
func (s *sender) answer(res *sarama.ProduceResponse, err error) {
	p := s.producer
	took := time.Since(s.lastUsed)
	example := ""
	s.acked = s.acked[:0]
	for i := range s.shipped {
		sh := &s.shipped[i]
		sh.judge(res, err)
		if sh.class != accepted {
			continue
		}
		before := len(s.acked)
		s.acked = sh.batch.appendSeqs(s.acked)
		if p.cfg.Delivered != nil {
			example = cmp.Or(example, s.delivered(sh, s.acked[before:]))
		}
	}
	if p.cfg.Answered != nil && res != nil {
		p.cfg.Answered(took, example)
	}
	// First the outcome, then the window: when nothing is unacknowledged any more, every
	// outcome has been reported.
	p.report(s.acked, nil)

	p.mu.Lock()
	luck := luck()
	for i := range s.shipped {
		p.settle(s, &s.shipped[i], luck)
	}
	if res != nil {
		p.meet(res)
		s.answered = time.Now()
		s.throttle = s.answered.Add(res.ThrottleTime)
		if silence := p.silences[s.node]; silence != nil && !silence.over() {
			signal(p.eased)
		}
	}
	s.broken = s.broken || err != nil
	s.busy, s.began = false, time.Time{}
	p.unanswered--
	if p.gated && p.unanswered == 0 {
		signal(p.attend)
	}
	p.finishIfDone()
	signal(p.space)
	signal(s.wake)
	p.unlock()
}

// delivered tells where the records of a batch are.
func (s *sender) delivered(sh *shipment, seqs []uint64) (example string) {
	return s.producer.cfg.Delivered(sink.Delivery{
		Topic: sh.part.topic.name, Partition: sh.part.id, Offset: sh.block.Offset, Broker: s.link.addr, Seqs: seqs,
	})
}

// judge finds what the answer says about the batch.
func (sh *shipment) judge(res *sarama.ProduceResponse, err error) {
	sh.block = nil
	if err != nil {
		sh.class, sh.err = classifyRequest(err), named(err)
		return
	}
	sh.block = res.GetBlock(sh.part.topic.name, sh.part.id)
	if sh.block == nil {
		sh.class, sh.err = retry, errNoAnswer
		return
	}
	sh.class, sh.err = classify(sh.block.Err), nil
	if sh.class == accepted {
		return
	}
	e := errorOf(sh.block.Err)
	if says := brokerText(sh.block); says != "" && sh.class == record {
		e.Detail += "; the broker says: " + says
	}
	sh.err = e
}

// brokerText returns what the broker says of a batch, of the record rather than of the batch
// if it can: once the record is alone in its batch, that is the reason.
func brokerText(block *sarama.ProduceResponseBlock) string {
	m := block.ErrorMessage
	if len(block.RecordErrors) > 0 && block.RecordErrors[0].BatchIndexErrorMessage != nil {
		m = block.RecordErrors[0].BatchIndexErrorMessage
	}
	if m == nil {
		return ""
	}
	return *m
}

// settle does with a batch what its class demands. p.mu is held.
func (p *producer) settle(s *sender, sh *shipment, luck float64) {
	part, b := sh.part, sh.batch
	part.inRequest = false
	part.answered(sh.block != nil, s.began)
	if sh.class != corrupt {
		b.corrupt = 0
	}
	switch sh.class {
	case accepted:
		p.settleAccepted(part, b)
	case retry, missing, refused:
		if sh.block != nil {
			p.complain(part.topic, sh.block.Err)
			if leader := sh.block.CurrentLeader; leader != nil {
				part.hint = leader.LeaderID
			}
		}
		p.strike(part, sh.class, sh.err, s.began, luck)
	case corrupt:
		s.broken = true
		if b.corrupt++; b.corrupt >= corruptLimit {
			p.isolate(part, b, sh)
			return
		}
		p.strike(part, sh.class, sh.err, s.began, luck)
	case record:
		if !p.restamp(part, b, sh) {
			p.isolate(part, b, sh)
		}
	case idLost:
		p.loseIdentity(part, sh)
		p.strike(part, sh.class, sh.err, s.began, luck)
	case fenced:
		p.halt(fatalError(errFenced, part, sh.err))
	case fatal:
		p.halt(fatalError(errFatal, part, sh.err))
	}
}

// settleAccepted forgets a batch that is in the log. p.mu is held.
func (p *producer) settleAccepted(part *partition, b *batch) {
	t := part.topic
	t.counters.records.Add(int64(b.records))
	t.counters.bytes.Add(int64(b.payload))
	t.unacked -= b.records
	t.refused = false
	p.proven = true
	p.forget(b.records, b.payload)
	p.removeFirst(part)
	part.state = idle
	if part.attempts > 0 {
		part.trouble = trouble{}
		delete(p.trouble, part)
		if len(p.trouble) == 0 {
			signal(p.eased)
		}
	}
	if len(part.queue) > 0 {
		p.makeReady(part)
	} else if t.resizeTo > 0 && t.settled() {
		signal(p.attend)
	}
}

// strike has part wait for its back-off and then be placed again. p.mu is held.
func (p *producer) strike(part *partition, c class, err error, start time.Time, luck float64) {
	p.client.counters.retries.Add(1)
	p.client.counters.failed("topic " + part.topic.name + ", partition " + strconv.Itoa(int(part.id)) + ": " + err.Error())
	part.struck(err, start, time.Now(), luck)
	switch {
	case c == refused:
		part.due = time.Now().Add(time.Duration(luck * float64(backoffRefused)))
	case part.attempts == 1 && part.hint != noLeader:
		part.due = time.Time{} // it is known where to go
	}
	p.setTroubled(part)
}

// meet notes the addresses of leaders that the answer names. p.mu is held.
func (p *producer) meet(res *sarama.ProduceResponse) {
	for _, n := range res.NodeEndpoints {
		p.client.cluster.meet(n.NodeID, net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))))
	}
}
