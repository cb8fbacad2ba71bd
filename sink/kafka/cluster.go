package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// defaultMessageBytes is the maximum batch size for a topic whose limit is unknown. It is the limit of the
// Java producer, and a little less than brokers accept by default.
const defaultMessageBytes = 1_000_000

// noLeader is the leader of a partition without leader.
const noLeader = -1

// A cluster has the metadata of brokers and topics. It outlives producers. Methods may be called from any
// goroutine. Those with a context send a request to a broker.
type cluster struct {
	control    *control
	fixedLimit int // Config.MaxMessageBytes
	createSpec *TopicSpec

	mu      sync.Mutex
	brokers map[int32]string
	topics  map[string]topicInfo
}

// A topicInfo has the metadata of a topic.
type topicInfo struct {
	err          sarama.KError // why the other fields are unknown
	writeDenied  bool          // the user may not write
	wasWritable  bool          // the topic was found without err and writeDenied since Open
	id           sarama.Uuid   // zero: the brokers are too old
	leaders      []leader      // of each partition
	limit        int           // max.message.bytes; 0: not read yet
	limitGuessed bool          // limit is defaultMessageBytes, because the user may not read it
}

// A leader is the leader of a partition in an epoch. Each new leader, and the loss of one, raises the epoch. A
// re-created topic, which has another id, starts again at epoch 0.
type leader struct {
	node  int32 // broker id, or noLeader
	epoch int32
}

// writeError returns why records for the topic have to wait.
func (i topicInfo) writeError() sarama.KError {
	if i.err == sarama.ErrNoError && i.writeDenied {
		return sarama.ErrTopicAuthorizationFailed
	}
	return i.err
}

func (c *cluster) topic(name string) topicInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topics[name]
}

// forget removes the metadata of a topic.
func (c *cluster) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, name)
}

// address returns the address of a broker, or "" if it is unknown.
func (c *cluster) address(node int32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[node]
}

// addressExcept returns the address of a broker that is not in nodes, or "" if there is none.
func (c *cluster) addressExcept(nodes map[int32]time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(c.brokers)) {
		if _, ok := nodes[node]; !ok {
			return c.brokers[node]
		}
	}
	return ""
}

// addresses returns the addresses of the given brokers.
func (c *cluster) addresses(nodes map[int32]time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var addrs []string
	for node := range nodes {
		addrs = append(addrs, c.brokers[node])
	}
	return addrs
}

// learnBroker stores the address of a broker from a response.
func (c *cluster) learnBroker(node int32, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[node] = addr
}

// learnLeader stores the leader of a partition from a response, and reports true. If a newer leader is known,
// it reports false.
func (c *cluster) learnLeader(topic string, partition int32, l leader) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.topics[topic].leaders
	if int(partition) >= len(known) || known[partition].epoch > l.epoch {
		return false
	}
	known = slices.Clone(known) // a returned topicInfo must not change
	known[partition] = l
	info := c.topics[topic]
	info.leaders = known
	c.topics[topic] = info
	return true
}

// refresh requests the partitions and leaders of the named topics. The error of a topic is stored in its
// topicInfo.
func (c *cluster) refresh(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return c.control.do(ctx, func(l *link) error {
		res, err := fetchMetadata(l, names)
		if err != nil {
			return err
		}
		c.storeMetadata(res)
		return nil
	})
}

// fetchMetadata requests the metadata of the named topics. names must not be empty, because such a request is
// about every topic of the cluster.
func fetchMetadata(l *link, names []string) (*sarama.MetadataResponse, error) {
	req := sarama.NewMetadataRequest(protocol(), names)
	req.AllowAutoTopicCreation = false
	req.IncludeTopicAuthorizedOperations = true
	return l.GetMetadata(req)
}

// storeMetadata stores the brokers and topics of a response. For each partition it keeps the leader with the
// highest epoch, so that a broker with outdated metadata cannot bring back an older leader. Brokers before 2.8
// send no topic id, so a re-created topic could not be detected; there, the last response counts.
func (c *cluster) storeMetadata(res *sarama.MetadataResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addrs := make([]string, 0, len(res.Brokers))
	for _, b := range res.Brokers {
		c.brokers[b.ID()] = b.Addr()
		addrs = append(addrs, b.Addr())
	}
	c.control.setBrokers(addrs)
	for _, t := range res.Topics {
		info := c.topics[t.Name]
		info.err = t.Err
		if t.Err == sarama.ErrNoError {
			allowed, told := allows(t.TopicAuthorizedOperations, operationWrite)
			info.writeDenied = told && !allowed
			info.wasWritable = info.wasWritable || !info.writeDenied
			known := info.leaders
			if t.Uuid != info.id || t.Uuid == (sarama.Uuid{}) {
				known = nil
			}
			info.id, info.leaders = t.Uuid, leadersOf(t.Partitions, known)
		}
		c.topics[t.Name] = info
	}
}

// leadersOf returns the leader of each partition. It prefers the known leader if that has a higher epoch.
func leadersOf(partitions []*sarama.PartitionMetadata, known []leader) []leader {
	leaders := slices.Repeat([]leader{{node: noLeader}}, len(partitions))
	for _, p := range partitions {
		id := int(p.ID)
		if id >= len(leaders) {
			continue
		}
		leaders[id] = leader{p.Leader, p.LeaderEpoch}
		if p.Err == sarama.ErrLeaderNotAvailable {
			leaders[id].node = noLeader
		}
		if id < len(known) && known[id].epoch > p.LeaderEpoch {
			leaders[id] = known[id]
		}
	}
	return leaders
}

// readLimits requests max.message.bytes of each named topic that exists. If the user may not read it, the limit
// is defaultMessageBytes, and the broker decides about larger records.
func (c *cluster) readLimits(ctx context.Context, names []string) error {
	limits := make(map[string]int, len(names))
	for _, name := range names {
		if c.topic(name).err == sarama.ErrNoError {
			limits[name] = c.fixedLimit
		}
	}
	if c.fixedLimit == 0 && len(limits) > 0 {
		if err := c.control.do(ctx, func(l *link) error { return describeLimits(l, limits) }); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, limit := range limits {
		info := c.topics[name]
		info.limit, info.limitGuessed = limit, limit == 0
		if info.limitGuessed {
			info.limit = defaultMessageBytes
		}
		c.topics[name] = info
	}
	return nil
}

// describeLimits sets the values of limits, by topic, to max.message.bytes.
func describeLimits(l *link, limits map[string]int) error {
	values, err := describeTopics(l, "max.message.bytes", slices.Collect(maps.Keys(limits))...)
	for name, value := range values {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			limits[name] = n
		}
	}
	return err
}

// describeTopics returns, by topic, the value of a setting of the named topics.
func describeTopics(l *link, setting string, names ...string) (map[string]string, error) {
	req := &sarama.DescribeConfigsRequest{Version: 1}
	for _, name := range names {
		req.Resources = append(req.Resources, &sarama.ConfigResource{
			Type: sarama.TopicResource, Name: name, ConfigNames: []string{setting},
		})
	}
	res, err := l.DescribeConfigs(req)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string, len(names))
	for _, r := range res.Resources {
		for _, entry := range r.Configs {
			if entry.Name == setting {
				values[r.Name] = entry.Value
			}
		}
	}
	return values, nil
}

// createConfigured creates the named topics as configured; see createTopics.
func (c *cluster) createConfigured(ctx context.Context, names []string) (map[string]error, error) {
	topics := make(map[string]*sarama.TopicDetail, len(names))
	for _, name := range names {
		topics[name] = &sarama.TopicDetail{
			NumPartitions:     orDefault(c.createSpec.Partitions),
			ReplicationFactor: orDefault(c.createSpec.ReplicationFactor),
		}
	}
	return c.createTopics(ctx, topics)
}

// createTopics creates topics. The result has the topics that were not created, with the reason. A topic that
// already exists counts as created.
func (c *cluster) createTopics(ctx context.Context, details map[string]*sarama.TopicDetail) (map[string]error, error) {
	failed := make(map[string]error)
	err := c.control.do(ctx, func(l *link) error {
		clear(failed)
		res, err := l.CreateTopics(sarama.NewCreateTopicsRequest(protocol(), details, controlTimeout/2, false))
		if err != nil {
			return err
		}
		for name, e := range res.TopicErrors {
			if e.Err == sarama.ErrNoError || e.Err == sarama.ErrTopicAlreadyExists {
				continue
			}
			failed[name] = creationError(e)
			if e.Err == sarama.ErrNotController {
				return c.preferController(l, name)
			}
		}
		return nil
	})
	return failed, err
}

// creationError returns why a topic is not created. The broker's message replaces our text, which is about other
// requests.
func creationError(e *sarama.TopicError) error {
	coded := errorOf(e.Err)
	if message := textOf(e.ErrMsg); message != "" {
		coded.detail = strings.TrimSuffix(message, ".")
	}
	return coded
}

// errNotController makes control.do use the next broker, which is then the controller.
var errNotController = errors.New("another broker is the controller")

// orDefault returns n, or -1 for zero: the cluster's default (KIP-464).
func orDefault[N int16 | int32](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// preferController makes the controller the first broker for the next request. Before KRaft, only the
// controller creates and deletes topics.
func (c *cluster) preferController(l *link, topic string) error {
	res, err := fetchMetadata(l, []string{topic})
	if err != nil {
		return err
	}
	c.storeMetadata(res)
	if addr := c.address(res.ControllerID); addr != "" && addr != l.addr {
		c.control.preferBroker(addr)
		return errNotController
	}
	return nil
}
