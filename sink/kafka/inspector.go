package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An inspector reads what decides whether a cluster accepts records. It writes and creates nothing, and deletes
// only the topic that is passed to deleteTopic. Its methods may be called from any goroutine, and block until
// the cluster has responded or ctx ends. An error wraps sink.ErrAccess if a retry cannot help.
type inspector struct{ client *client }

// newInspector returns an inspector. It does not connect. The caller must close the inspector.
func newInspector(cfg Config) (*inspector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(cfg.withDefaults(), slog.New(slog.DiscardHandler), cfg.dial())
	if err != nil {
		return nil, err
	}
	return &inspector{c}, nil
}

// close closes the connection of the inspector.
func (i *inspector) close() { i.client.control.close() }

// reach connects to the broker at addr, logs in and sends a request.
func (i *inspector) reach(ctx context.Context, addr string) error {
	l, err := i.client.connector.connect(ctx, addr, controlTimeout)
	if err != nil {
		return err
	}
	l.conn.closeWith(ctx)
	_, err = l.ApiVersions(&sarama.ApiVersionsRequest{})
	_ = l.Close()
	if err != nil {
		return requestError(addr, err, i.client.connector.sasl != nil)
	}
	return nil
}

// A listedBroker is a broker from the metadata of a cluster.
type listedBroker struct {
	id   int32
	addr string // address from advertised.listeners
}

// brokers returns the brokers of the cluster by their ids.
func (i *inspector) brokers(ctx context.Context) ([]listedBroker, error) {
	var brokers []listedBroker
	err := i.client.control.do(ctx, func(l *link) error {
		res, err := fetchMetadata(l, []string{"__consumer_offsets"}) // an empty list would mean all topics
		if err != nil {
			return err
		}
		brokers = nil
		for _, b := range res.Brokers {
			brokers = append(brokers, listedBroker{id: b.ID(), addr: b.Addr()})
		}
		return nil
	})
	slices.SortFunc(brokers, func(a, b listedBroker) int { return int(a.id) - int(b.id) })
	return brokers, err
}

// An operation is an ACL operation on a topic, with the bits of KIP-430.
type operation int

// The operations that a relay needs.
const (
	operationRead     operation = 3
	operationWrite    operation = 4
	operationDescribe operation = 8
)

// String returns the name of the operation in kafka-acls.sh.
func (o operation) String() string {
	switch o {
	case operationRead:
		return "Read"
	case operationWrite:
		return "Write"
	case operationDescribe:
		return "Describe"
	}
	return fmt.Sprintf("operation %d", int(o))
}

// A topicState has the metadata of a topic.
type topicState struct {
	name    string
	missing bool
	err     error // why nothing else is known; nil where missing

	partitions int
	replicas   int // minimum over the partitions
	inSync     int // in-sync replicas, minimum over the partitions
	leaderless int // number of partitions without a leader

	settings map[string]string // of the topic, with cluster defaults; nil: the user may not describe them

	operations int32 // authorized operations of the user, by bit
}

// allows reports whether the user may do op. known is false if the broker is too old to say.
func (t *topicState) allows(op operation) (allowed, known bool) { return allows(t.operations, op) }

// allows reports whether op is one of the authorized operations of a topic (KIP-430). known is false for brokers
// before 2.3, which do not send them.
func allows(operations int32, op operation) (allowed, known bool) {
	const untold = -1 << 31
	if operations == untold || operations == 0 {
		return false, false
	}
	return operations&(1<<op) != 0, true
}

// compacted reports whether cleanup.policy has compact. known is false if the user may not describe the settings.
func (t *topicState) compacted() (yes, known bool) {
	policy, known := t.settings[cleanupPolicy]
	return slices.Contains(strings.Split(policy, ","), compact), known
}

// topics returns the metadata of the named topics, in the same order.
func (i *inspector) topics(ctx context.Context, names ...string) ([]*topicState, error) {
	if len(names) == 0 {
		return nil, nil
	}
	topics := make(map[string]*topicState, len(names))
	err := i.client.control.do(ctx, func(l *link) error {
		res, err := fetchMetadata(l, names)
		if err != nil {
			return err
		}
		for _, t := range res.Topics {
			topics[t.Name] = topicOf(t)
		}
		return describeSettings(l, topics)
	})
	if err != nil {
		return nil, err
	}
	out := make([]*topicState, len(names))
	for n, name := range names {
		if out[n] = topics[name]; out[n] == nil {
			return nil, fmt.Errorf("the broker's response lacks topic %s", name)
		}
	}
	return out, nil
}

// Compacted returns which of the topics are compacted. It implements [sink.Compacter].
func (c Config) Compacted(ctx context.Context, topics ...string) (map[string]bool, error) {
	i, err := newInspector(c)
	if err != nil {
		return nil, err
	}
	defer i.close()
	described, err := i.topics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	compacted := make(map[string]bool, len(topics))
	for _, t := range described {
		if yes, known := t.compacted(); known {
			compacted[t.name] = yes
		}
	}
	return compacted, nil
}

func topicOf(m *sarama.TopicMetadata) *topicState {
	t := &topicState{name: m.Name, missing: m.Err == sarama.ErrUnknownTopicOrPartition, operations: m.TopicAuthorizedOperations}
	if m.Err != sarama.ErrNoError {
		if !t.missing {
			t.err = errorOf(m.Err)
		}
		return t
	}
	t.partitions = len(m.Partitions)
	for n, p := range m.Partitions {
		if n == 0 || len(p.Replicas) < t.replicas {
			t.replicas = len(p.Replicas)
		}
		if n == 0 || len(p.Isr) < t.inSync {
			t.inSync = len(p.Isr)
		}
		if p.Leader == noLeader || p.Err == sarama.ErrLeaderNotAvailable {
			t.leaderless++
		}
	}
	return t
}

// describeSettings sets the settings of the existing topics.
func describeSettings(l *link, topics map[string]*topicState) error {
	req := &sarama.DescribeConfigsRequest{Version: 1}
	for name, t := range topics {
		if !t.missing && t.err == nil {
			req.Resources = append(req.Resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
		}
	}
	if len(req.Resources) == 0 {
		return nil
	}
	res, err := l.DescribeConfigs(req)
	if err != nil {
		return err
	}
	for _, r := range res.Resources {
		t := topics[r.Name]
		if t == nil || sarama.KError(r.ErrorCode) != sarama.ErrNoError {
			continue
		}
		t.settings = make(map[string]string, len(r.Configs))
		for _, entry := range r.Configs {
			t.settings[entry.Name] = entry.Value
		}
	}
	return nil
}

// mayCreate lets the cluster check, without creating it, whether the user may create a topic with spec. A
// [*codeError] is the cluster's response.
func (i *inspector) mayCreate(ctx context.Context, name string, spec TopicSpec) error {
	details := map[string]*sarama.TopicDetail{name: {
		NumPartitions: orDefault(spec.Partitions), ReplicationFactor: orDefault(spec.ReplicationFactor),
	}}
	var answer error
	err := i.client.control.do(ctx, func(l *link) error {
		answer = nil
		const validateOnly = true
		res, err := l.CreateTopics(sarama.NewCreateTopicsRequest(protocol(), details, controlTimeout/2, validateOnly))
		if err != nil {
			return err
		}
		for name, e := range res.TopicErrors {
			switch {
			case e.Err == sarama.ErrNotController:
				return i.client.cluster.preferController(l, name)
			case e.Err != sarama.ErrNoError && e.Err != sarama.ErrTopicAlreadyExists:
				answer = creationError(e)
			}
		}
		return nil
	})
	return errors.Join(err, answer)
}

// deleteTopic deletes a topic. It returns nil if the topic does not exist. It retries transient errors until ctx
// ends.
func (i *inspector) deleteTopic(ctx context.Context, name string) error {
	return i.client.retryTransient(ctx, func() error {
		var answer sarama.KError
		err := i.client.control.do(ctx, func(l *link) error {
			res, err := l.DeleteTopics(sarama.NewDeleteTopicsRequest(protocol(), []string{name}, controlTimeout/2))
			if err != nil {
				return err
			}
			if answer = res.TopicErrorCodes[name]; answer == sarama.ErrNotController {
				return i.client.cluster.preferController(l, name)
			}
			return nil
		})
		if err != nil || answer == sarama.ErrNoError || answer == sarama.ErrUnknownTopicOrPartition {
			return err
		}
		return errorOf(answer)
	})
}

// mayWrite checks whether the user may write with an idempotent producer, by requesting a producer id like every
// start. It retries transient errors until ctx ends.
func (i *inspector) mayWrite(ctx context.Context) error { return i.client.reachCluster(ctx) }

// mayOwn checks whether the user may use a transactional id as a relay does. The identity of a running relay does not
// change. It retries transient errors until ctx ends.
func (i *inspector) mayOwn(ctx context.Context, transactionalID string) error {
	c := &coordinator{client: i.client, id: transactionalID}
	defer c.disconnect()
	return i.client.retryTransient(ctx, func() error { return c.mayInit(ctx) })
}

// isRefusal reports whether err is the cluster's response that the user lacks a privilege.
func isRefusal(err error) bool {
	answer, ok := errors.AsType[*codeError](err)
	return ok && classify(answer.code) == accessDenied
}

// sizeAlone returns the size of a batch with only r, before compression. max.message.bytes of a topic limits it. It is 0 for no
// record.
func sizeAlone(r *sink.Record) int {
	if r == nil {
		return 0
	}
	s := shapeOf(r)
	return batchOverhead + s.wireSize(0, 0)
}
