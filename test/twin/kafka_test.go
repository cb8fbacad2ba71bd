package twin

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// topics are the topics of the events.
var topics = []string{"orders", "invoices"}

const (
	positions   = "positions"
	deadLetters = "dead"

	poisonous = "poison: " // prefix of values that brokers reject
	noLeader  = -1
)

// A cluster simulates a Kafka cluster. Its methods lock mu for each step.
type cluster struct {
	net     *network
	history *history
	config  kafka.Config                                  // without Dial
	tamper  func(topic string, records []record) []record // changes the records that are stored; for mutations

	mu             sync.Mutex
	rng            *rand.Rand
	nodes          []*node
	topics         map[string][]*partition
	producers      int64
	transactionals map[string]*transactional
	over           bool // no marker is written any more
	fates          fates
	cured          int    // brokers accept the poisonous values of the rows up to this number
	unsafe         string // a topic with fewer in-sync replicas than min.insync.replicas
}

type node struct {
	id    int
	addr  string
	conns map[*conn]struct{}
	stale map[*partition]int // the former leaders that it still names; nil: it names the current ones
}

func (n *node) sortedConns() []*conn {
	return sorted(slices.Collect(maps.Keys(n.conns)))
}

type partition struct {
	leader  int // or noLeader
	end     int64
	batches []stored
	states  map[int64]*producerState
	onRead  []func() // called when the partition is read next
}

// stored is a batch as the relay sent it, with the offset that the broker has assigned.
type stored struct {
	last  int64
	bytes []byte
	value string // of the last record
}

// A producerState is the epoch and the newest batches of a producer in a partition.
type producerState struct {
	epoch   int16
	batches []sequences
}

type sequences struct{ first, last int32 }

func newKafka(n *network, h *history, rng *rand.Rand, brokers int, topics map[string]int) *cluster {
	k := &cluster{
		net: n, history: h, rng: rng, topics: make(map[string][]*partition), transactionals: make(map[string]*transactional),
		tamper: func(_ string, records []record) []record { return records },
	}
	for i := range brokers {
		k.nodes = append(k.nodes, &node{id: i, addr: fmt.Sprintf("kafka-%d:9092", i), conns: make(map[*conn]struct{})})
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		k.create(name, topics[name])
	}
	for _, n := range k.nodes {
		k.up(n)
	}
	return k
}

func (k *cluster) create(topic string, partitions int) {
	for range partitions {
		k.topics[topic] = append(k.topics[topic], &partition{leader: k.rng.IntN(len(k.nodes)), states: make(map[int64]*producerState)})
	}
}

func (k *cluster) addrs() []string {
	var addrs []string
	for _, n := range k.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// connect implements broker.
func (k *cluster) connect(h *host) sink.Broker {
	cfg := k.config
	cfg.Dial = h.dial
	return cfg
}

// servers implements broker.
func (k *cluster) servers() (all [][]*conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.nodes {
		all = append(all, n.sortedConns())
	}
	return all
}

// setFates implements broker.
func (k *cluster) setFates(n *nemesis) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fates.weights = n.weights(kafkaFates)
}

// failOne implements broker.
func (k *cluster) failOne(rng *rand.Rand) (start func()) {
	n := k.nodes[rng.IntN(len(k.nodes))]
	k.fail(n)
	return func() { k.up(n) }
}

// failAll implements broker.
func (k *cluster) failAll() {
	for _, n := range k.nodes {
		k.fail(n)
	}
}

// end implements broker. It also ends the writing of markers.
func (k *cluster) end() {
	k.failAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
}

// up makes n accept connections.
func (k *cluster) up(n *node) {
	k.net.listen(n.addr, func(c *conn) {
		k.mu.Lock()
		n.conns[c] = struct{}{}
		k.mu.Unlock()
		k.serve(n, c)
		k.mu.Lock()
		delete(n.conns, c)
		k.mu.Unlock()
	})
}

// fail makes n close its connections and accept no new ones. The partitions that n leads get another
// leader, or none.
func (k *cluster) fail(n *node) {
	k.net.unlisten(n.addr)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.history.note("kafka: broker %d is down", n.id)
	for _, c := range n.sortedConns() {
		c.cut(k.rng.IntN(2) == 0)
	}
	for _, p := range k.partitions() {
		if p.leader == n.id {
			p.leader = k.rng.IntN(len(k.nodes)+1) - 1
		}
	}
}

// partitions returns all partitions, ordered by topic name. The caller must hold mu.
func (k *cluster) partitions() []*partition {
	var all []*partition
	for _, name := range slices.Sorted(maps.Keys(k.topics)) {
		all = append(all, k.topics[name]...)
	}
	return all
}

// move gives a random partition another leader, or none.
func (k *cluster) move() {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.partitions()
	if len(all) == 0 {
		return
	}
	p := all[k.rng.IntN(len(all))]
	p.leader = k.rng.IntN(len(k.nodes)+1) - 1
	k.history.note("kafka: a leader moves to %d", p.leader)
}

// depose removes the leaders of a topic.
func (k *cluster) depose(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.topics[topic] {
		p.leader = noLeader
	}
	k.history.note("kafka: topic %s has no leader", topic)
}

// forgetLeaders makes a broker keep naming the present leaders, even if they change. If on is false, the
// broker names the current leaders again.
func (k *cluster) forgetLeaders(n *node, on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.stale = nil
	if !on {
		return
	}
	n.stale = make(map[*partition]int)
	for _, p := range k.partitions() {
		n.stale[p] = p.leader
	}
	k.history.note("kafka: broker %d hears of no other leaders", n.id)
}

// leaderOf returns the leader of a partition according to n. The caller must hold mu.
func (n *node) leaderOf(p *partition) int {
	if leader, ok := n.stale[p]; ok {
		return leader
	}
	return p.leader
}

// setUnsafe makes brokers reject all records of a topic with NOT_ENOUGH_REPLICAS.
func (k *cluster) setUnsafe(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsafe = topic
}

// grow adds a partition to a topic. Keys then move to other partitions.
func (k *cluster) grow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	topic := topics[k.rng.IntN(len(topics))]
	k.create(topic, 1)
	k.history.grow()
	k.history.note("kafka: topic %s has %d partitions", topic, len(k.topics[topic]))
}

// heal starts every broker, gives every partition a leader and ends all request faults.
func (k *cluster) heal() {
	for _, n := range k.nodes {
		k.up(n)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fates = fates{}
	for _, n := range k.nodes {
		n.stale = nil
	}
	for _, p := range k.partitions() {
		if p.leader == noLeader {
			p.leader = k.rng.IntN(len(k.nodes))
		}
	}
	k.history.note("kafka: healed")
}

// cure makes brokers accept the poisonous values of the rows up to a number.
func (k *cluster) cure(serial int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cured = max(k.cured, serial)
	k.history.note("kafka: takes poison up to row %d now", k.cured)
}

// produce appends a batch like a leader and returns the error of the response. It accepts poisonous values up to the row cured.
// The caller must hold mu.
func (k *cluster) produce(n *node, c *conn, topic string, answer *kmsg.ProduceResponseTopicPartition, batch []byte, cured int) error {
	ps := k.topics[topic]
	if int(answer.Partition) >= len(ps) {
		return kerr.UnknownTopicOrPartition
	}
	p := ps[answer.Partition]
	if p.leader != n.id {
		return kerr.NotLeaderForPartition
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(batch); err != nil || b.Magic != 2 || crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)) != uint32(b.CRC) {
		k.history.violated("run %d: a broken batch for %s: %v", c.run, topic, err)
		return kerr.CorruptMessage
	}
	records, err := readRecords(b.Records, b.Attributes)
	if err != nil || len(records) != int(b.NumRecords) || len(records) != int(b.LastOffsetDelta)+1 {
		k.history.violated("run %d: a batch for %s of %d records, %d announced: %v", c.run, topic, len(records), b.NumRecords, err)
		return kerr.CorruptMessage
	}
	if topic != deadLetters {
		if judgePoison(records, answer, cured); len(answer.ErrorRecords) > 0 {
			if c.rng.IntN(2) == 0 {
				answer.ErrorRecords = nil // brokers before 2.4 do not name the record
			}
			return kerr.InvalidRecord
		}
	}
	if again, err := p.sequence(&b); err != nil || again {
		return err
	}
	k.append(writer{c.run, b.ProducerID, b.ProducerEpoch}, topic, p, batch, records)
	return nil
}

// judgePoison adds the rejected records of a batch to answer: those with poisonous values of rows after the number cured.
func judgePoison(records []record, answer *kmsg.ProduceResponseTopicPartition, cured int) {
	for i, r := range records {
		if isPoison(r.value, cured) {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset = int32(i)
			answer.ErrorRecords = append(answer.ErrorRecords, e)
		}
	}
}

// isPoison reports whether brokers reject a value: a poisonous one of a row after the number cured.
func isPoison(value string, cured int) bool {
	if !strings.HasPrefix(value, poisonous) {
		return false
	}
	serial := 0
	_, err := fmt.Sscanf(value, poisonous+"%d", &serial)
	return err != nil || serial > cured
}

// append stores a batch. The caller must hold mu.
func (k *cluster) append(w writer, topic string, p *partition, batch []byte, records []record) {
	b, first := slices.Clone(batch), p.end
	binary.BigEndian.PutUint64(b, uint64(first))
	for i, r := range k.tamper(topic, slices.Clone(records)) {
		if topic == positions {
			k.history.recorded(w, r.key, []byte(r.value))
			continue
		}
		k.history.stored(w, delivery.Coordinates{Topic: topic, Partition: int32(slices.Index(k.topics[topic], p)), Offset: first + int64(i)}, r)
	}
	p.end += int64(len(records))
	p.batches = append(p.batches, stored{p.end - 1, b, records[len(records)-1].value})
}

// sequence checks the sequence numbers of a batch. It returns true if the partition already has the batch.
// https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence
func (p *partition) sequence(b *kmsg.RecordBatch) (again bool, err error) {
	batch := sequences{b.FirstSequence, int32((int64(b.FirstSequence) + int64(b.LastOffsetDelta)) & 0x7fffffff)}
	s := p.states[b.ProducerID]
	switch {
	case s == nil: // an unknown producer may begin with any sequence number
	case b.ProducerEpoch < s.epoch:
		return false, kerr.InvalidProducerEpoch
	case b.ProducerEpoch > s.epoch:
		if batch.first != 0 {
			return false, kerr.OutOfOrderSequenceNumber
		}
		s = nil
	case slices.Contains(s.batches, batch):
		return true, nil
	case len(s.batches) == 0: // there is only a marker of the epoch
		if batch.first != 0 {
			return false, kerr.OutOfOrderSequenceNumber
		}
	case batch.first != int32((int64(s.batches[len(s.batches)-1].last)+1)&0x7fffffff):
		return false, kerr.OutOfOrderSequenceNumber
	}
	if s == nil {
		s = &producerState{epoch: b.ProducerEpoch}
		p.states[b.ProducerID] = s
	}
	s.batches = append(s.batches, batch)
	if len(s.batches) > 5 {
		s.batches = s.batches[1:]
	}
	return false, nil
}

// A record holds the parts of a record that the tests check.
type record struct {
	key, value string
	headers    map[string]string
}

var errRecords = errors.New("malformed records")

// readRecords decodes the records of a batch.
// https://kafka.apache.org/documentation/#record
func readRecords(b []byte, attributes int16) (records []record, err error) {
	if attributes&7 == 1 {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if b, err = io.ReadAll(z); err != nil {
			return nil, err
		}
	}
	defer func() {
		if recover() != nil { // a read beyond the end of b
			err = errRecords
		}
	}()
	varint := func() int {
		v, n := binary.Varint(b)
		if n <= 0 {
			panic(errRecords)
		}
		b = b[n:]
		return int(v)
	}
	text := func() string {
		n := varint()
		if n < 0 {
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 {
		size := varint()
		rest := len(b) - size
		b = b[1:] // attributes
		varint()  // time
		if offset := varint(); offset != len(records) {
			return nil, errRecords
		}
		r := record{key: text(), value: text(), headers: make(map[string]string)}
		for range varint() {
			name := text()
			r.headers[name] = text()
		}
		if len(b) != rest {
			return nil, errRecords
		}
		records = append(records, r)
	}
	return records, nil
}
