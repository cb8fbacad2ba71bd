package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// pingTimeout limits a ping of one broker.
const pingTimeout = 3 * time.Second

// minISR is the topic setting for the minimum number of in-sync replicas.
const minISR = "min.insync.replicas"

// A probe is the task to find out why a broker does not respond.
type probe struct {
	node       int32
	addr       string
	otherAddr  string           // of a broker that responds; empty: none
	partitions []topicPartition // some of the partitions that wait for the broker
	records    int              // number of records that wait for the broker
	throttled  bool             // the broker throttles us, and the request is not overdue since
	overdue    bool             // a request has had no response for silenceAfter
}

// A topicPartition is a partition of a topic.
type topicPartition struct {
	topic string
	id    int32
}

func (at topicPartition) String() string {
	return fmt.Sprintf("topic %s, partition %d", at.topic, at.id)
}

// slow is the state of a broker that responds to all requests but the one with records.
const slow = "slow"

// A finding is the reason why a broker does not respond, as far as known.
type finding struct {
	state  string // findings with the same state are the same
	text   string // a predicate; its subject is the broker
	advice string // how to fix it; may be empty
}

func brokerAt(node int32, addr string) string { return fmt.Sprintf("broker %d at %s", node, addr) }

// diagnoseSilence finds out why the broker of q does not respond. It pings the broker over a new connection, so
// that no record waits for it. If there is no response, it asks another broker, which may know that the
// partitions have a new leader. It takes at most two pingTimeouts.
func (c *client) diagnoseSilence(ctx context.Context, q probe) finding {
	if q.throttled {
		return finding{state: "throttled", text: "throttles us because a quota is used up"}
	}
	says, err := c.pingBroker(ctx, q.addr, q.partitions)
	if err == nil {
		return says.explainSilence(q)
	}
	found := pingFinding(err)
	if q.otherAddr == "" {
		return found
	}
	if says, err := c.pingBroker(ctx, q.otherAddr, q.partitions); err == nil {
		for _, at := range q.partitions {
			if moved, ok := says.leaderMoved(q.node, at); ok {
				return finding{found.state + "; " + moved.state, found.text + "; it " + moved.text, found.advice}
			}
		}
	}
	return found
}

// pingFinding returns the finding for a ping without response.
func pingFinding(err error) finding {
	if errors.Is(err, errNoResponse) {
		return finding{state: "silent", text: "accepts connections but does not respond: its process is frozen, or the network drops packets"}
	}
	state := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		state = op.Op + ": " + op.Err.Error() // without addresses, because our port changes
	}
	if errors.Is(err, sink.ErrAccess) {
		return finding{state, "rejects the connection: " + err.Error(), loginAdvice}
	}
	return finding{state, "cannot be connected to: " + err.Error(), cmp.Or(sink.AdviceOf(err), reachAdvice)}
}

// A clusterView is the metadata of topics as one broker has it.
type clusterView struct {
	brokers    map[int32]string
	topics     map[string]sarama.KError
	partitions map[topicPartition]*sarama.PartitionMetadata
	required   map[string]string // min.insync.replicas by topic, as far as known
	throttled  bool
}

// pingBroker requests the metadata of parts from the broker at addr.
func (c *client) pingBroker(ctx context.Context, addr string, parts []topicPartition) (*clusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var connected atomic.Bool
	w := *c.connector
	w.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := c.connector.dial(ctx, network, addr)
		connected.Store(err == nil)
		return conn, err
	}
	own := &control{connector: &w, seeds: []string{addr}, inUse: make(chan struct{}, 1)}
	defer own.close()
	var v *clusterView
	err := own.do(ctx, func(l *link) (err error) {
		v, err = viewOf(l, parts)
		return err
	})
	if err != nil && ctx.Err() != nil && connected.Load() {
		return nil, errNoResponse
	}
	return v, err
}

// viewOf requests the metadata of parts over l.
func viewOf(l *link, parts []topicPartition) (*clusterView, error) {
	var names []string
	for _, at := range parts {
		if len(names) == 0 || names[len(names)-1] != at.topic {
			names = append(names, at.topic)
		}
	}
	v := &clusterView{
		brokers: make(map[int32]string), topics: make(map[string]sarama.KError),
		partitions: make(map[topicPartition]*sarama.PartitionMetadata),
	}
	if len(names) == 0 {
		return v, nil
	}
	res, err := fetchMetadata(l, names)
	if err != nil {
		return nil, err
	}
	v.throttled = res.ThrottleTimeMs > 0
	for _, b := range res.Brokers {
		v.brokers[b.ID()] = b.Addr()
	}
	for _, t := range res.Topics {
		v.topics[t.Name] = t.Err
		for _, p := range t.Partitions {
			v.partitions[topicPartition{t.Name, p.ID}] = p
		}
	}
	v.required, _ = describeTopics(l, minISR, names...) // optional
	return v, nil
}

// explainSilence returns why the broker does not respond to the request, from its own metadata.
func (v *clusterView) explainSilence(q probe) finding {
	const but = "responds to other requests, but not to the one with records: "
	for _, at := range q.partitions {
		p := v.partitions[at]
		switch k := v.topics[at.topic]; {
		case k != sarama.ErrNoError:
			return finding{state: "topic", text: fmt.Sprintf("%sfor %s it reports %v", but, at, errorOf(k))}
		case p == nil:
			return finding{state: "topic", text: fmt.Sprintf("%sit does not know %s", but, at)}
		}
		if moved, ok := v.leaderMoved(q.node, at); ok {
			return moved
		}
		if n, err := strconv.Atoi(v.required[at.topic]); err == nil && len(p.Isr) < min(n, len(p.Replicas)) { // Kafka 4 requires no more than there are
			return finding{state: "replicas", text: fmt.Sprintf("%s%d of %d replicas of %s are in sync, and %s is %d", but, len(p.Isr), len(p.Replicas), at, minISR, n)}
		}
	}
	if v.throttled {
		return finding{state: "throttled", text: but + "it throttles us because a quota is used up"}
	}
	for _, at := range q.partitions {
		if isr := v.partitions[at].Isr; len(isr) > 1 {
			return finding{state: slow, text: fmt.Sprintf("%sit waits for its disk or for an in-sync replica (%s is on brokers %s)", but, at, joinNodes(isr))}
		}
	}
	return finding{state: slow, text: but + "it waits for its disk or is overloaded"}
}

// leaderMoved returns the finding that another broker than node leads a partition, or none. ok is false if node
// leads it.
func (v *clusterView) leaderMoved(node int32, at topicPartition) (finding, bool) {
	p := v.partitions[at]
	switch {
	case p == nil, p.Leader == node:
		return finding{}, false
	case p.Leader == noLeader:
		return finding{state: "leaderless", text: fmt.Sprintf("no longer leads %s, and no other broker does", at)}, true
	}
	return finding{
		state: fmt.Sprint("moved to ", p.Leader),
		text:  fmt.Sprintf("no longer leads %s: %s does", at, brokerAt(p.Leader, v.brokers[p.Leader])),
	}, true
}

func joinNodes(nodes []int32) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(texts, ", ")
}
