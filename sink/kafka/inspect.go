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

// An Inspector asks a cluster for everything that decides whether it will accept records. It
// writes and creates nothing, and deletes only the topic that DeleteTopic names. Its methods may
// be called from any goroutine, and block until the cluster has responded or ctx ends. Their
// errors wrap sink.ErrAccess if a retry cannot help.
type Inspector struct{ client *client }

// NewInspector returns an Inspector, which has to be closed. It contacts nobody.
func NewInspector(cfg Config) (*Inspector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(cfg.withDefaults(), slog.New(slog.DiscardHandler), cfg.dial())
	if err != nil {
		return nil, err
	}
	return &Inspector{client: c}, nil
}

// Close ends the Inspector's connection.
func (i *Inspector) Close() { i.client.control.close() }

// Reach connects to the broker at addr, logs in, and has it answer a request.
func (i *Inspector) Reach(ctx context.Context, addr string) error {
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

// A Broker is one that a cluster has named.
type Broker struct {
	ID   int32
	Addr string // where it says that clients reach it: advertised.listeners
}

// Brokers returns the brokers of the cluster by their ids.
func (i *Inspector) Brokers(ctx context.Context) ([]Broker, error) {
	var brokers []Broker
	err := i.client.control.do(ctx, func(l *link) error {
		res, err := fetchMetadata(l, []string{"__consumer_offsets"}) // of no topic at all would mean of every one
		if err != nil {
			return err
		}
		brokers = nil
		for _, b := range res.Brokers {
			brokers = append(brokers, Broker{ID: b.ID(), Addr: b.Addr()})
		}
		return nil
	})
	slices.SortFunc(brokers, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	return brokers, err
}

// An Operation is something that a user may be allowed to do with a topic: the bits of KIP-430.
type Operation int

// The operations a relay needs on one topic or another.
const (
	OperationRead     Operation = 3
	OperationWrite    Operation = 4
	OperationDescribe Operation = 8
)

// String names the operation as kafka-acls.sh does.
func (o Operation) String() string {
	switch o {
	case OperationRead:
		return "Read"
	case OperationWrite:
		return "Write"
	case OperationDescribe:
		return "Describe"
	}
	return fmt.Sprintf("operation %d", int(o))
}

// A Topic is what a cluster tells about one.
type Topic struct {
	name    string
	Missing bool
	Err     error // why nothing else is known; nil where Missing

	Partitions int
	Replicas   int // of the partition that has the fewest
	InSync     int // the same, of those that are in sync
	Leaderless int // partitions without a leader

	Settings map[string]string // of the topic and those it has from the cluster; nil: the user may not describe them

	operations int32 // of the user, by bit
}

// Allows reports whether the user may do op, and known whether the cluster has told.
func (t *Topic) Allows(op Operation) (allowed, known bool) { return allows(t.operations, op) }

// allows reports whether op is one of the authorized operations of a topic (KIP-430), and whether the
// broker has told: those before 2.3 do not.
func allows(operations int32, op Operation) (allowed, known bool) {
	const untold = -1 << 31
	if operations == untold || operations == 0 {
		return false, false
	}
	return operations&(1<<op) != 0, true
}

// Topics returns what the cluster tells of the named topics, in their order.
func (i *Inspector) Topics(ctx context.Context, names ...string) ([]*Topic, error) {
	if len(names) == 0 {
		return nil, nil
	}
	topics := make(map[string]*Topic, len(names))
	err := i.client.control.do(ctx, func(l *link) error {
		req := sarama.NewMetadataRequest(protocol(), names)
		req.AllowAutoTopicCreation = false
		req.IncludeTopicAuthorizedOperations = true
		res, err := l.GetMetadata(req)
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
	out := make([]*Topic, len(names))
	for n, name := range names {
		if out[n] = topics[name]; out[n] == nil {
			return nil, fmt.Errorf("the broker says nothing of topic %s", name)
		}
	}
	return out, nil
}

func topicOf(m *sarama.TopicMetadata) *Topic {
	t := &Topic{name: m.Name, Missing: m.Err == sarama.ErrUnknownTopicOrPartition, operations: m.TopicAuthorizedOperations}
	if m.Err != sarama.ErrNoError {
		if !t.Missing {
			t.Err = errorOf(m.Err)
		}
		return t
	}
	t.Partitions = len(m.Partitions)
	for n, p := range m.Partitions {
		if n == 0 || len(p.Replicas) < t.Replicas {
			t.Replicas = len(p.Replicas)
		}
		if n == 0 || len(p.Isr) < t.InSync {
			t.InSync = len(p.Isr)
		}
		if p.Leader == noLeader || p.Err == sarama.ErrLeaderNotAvailable {
			t.Leaderless++
		}
	}
	return t
}

// describeSettings fills in the settings of the topics that exist.
func describeSettings(l *link, topics map[string]*Topic) error {
	req := &sarama.DescribeConfigsRequest{Version: 1}
	for name, t := range topics {
		if !t.Missing && t.Err == nil {
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
		t.Settings = make(map[string]string, len(r.Configs))
		for _, entry := range r.Configs {
			t.Settings[entry.Name] = entry.Value
		}
	}
	return nil
}

// MayCreate has the cluster check, without creating it, whether the user may create a topic like spec.
// The error is the cluster's answer if it is a *[codeError].
func (i *Inspector) MayCreate(ctx context.Context, name string, spec TopicSpec) error {
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
				answer = answerError(e)
			}
		}
		return nil
	})
	return errors.Join(err, answer)
}

// answerError returns the broker's error code with the broker's own message.
func answerError(e *sarama.TopicError) error {
	coded := errorOf(e.Err)
	if e.ErrMsg != nil && *e.ErrMsg != "" {
		coded.detail = strings.TrimSuffix(*e.ErrMsg, ".")
	}
	return coded
}

// DeleteTopic deletes a topic. It returns nil if there is none of that name. What may heal is
// retried until ctx ends.
func (i *Inspector) DeleteTopic(ctx context.Context, name string) error {
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

// MayWrite takes a producer id, as every start does: whether the user may write at all, and
// with sequence numbers. What heals by itself is tried again.
func (i *Inspector) MayWrite(ctx context.Context) error { return i.client.reachCluster(ctx) }

// IsRefusal reports whether err is a cluster's answer that the user lacks a right.
func IsRefusal(err error) bool {
	answer, ok := errors.AsType[*codeError](err)
	return ok && classify(answer.code) == accessDenied
}

// Size returns the size of r as a batch of its own, before compression: what a topic's
// max.message.bytes is compared with.
func Size(r *sink.Record) int {
	s := shapeOf(r)
	return batchOverhead + s.wireSize(0, 0)
}
