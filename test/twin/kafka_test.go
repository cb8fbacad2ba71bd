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
)

// topics are those of the events.
var topics = []string{"orders", "invoices"}

const (
	positions   = "positions"
	deadLetters = "dead"

	poisonous = "poison: " // what a value begins with that brokers do not take
	noLeader  = -1
)

// A cluster is Kafka. It locks itself for every step.
type cluster struct {
	net     *network
	history *history
	tamper  func(topic string, records []record) []record // what is stored instead; for mutations

	mu        sync.Mutex
	rng       *rand.Rand
	nodes     []*node
	topics    map[string][]*partition
	producers int64
	fates     fates
	antidote  bool   // poison is taken
	unsafe    string // a topic with fewer replicas than a record needs
}

type node struct {
	id    int
	addr  string
	conns map[*conn]struct{}
	stale map[*partition]int // the leaders that it still names; nil: it knows the present ones
}

func (n *node) sortedConns() []*conn {
	return sorted(slices.Collect(maps.Keys(n.conns)))
}

type partition struct {
	leader  int // or noLeader
	end     int64
	batches []stored // of the position topic only: it is read
	states  map[int64]*producerState
}

// stored is a batch as it was sent, but for its offset.
type stored struct {
	last  int64
	bytes []byte
	value string // of its record
}

// A producerState is what a partition remembers of a producer: its newest batches.
type producerState struct {
	epoch   int16
	batches []sequences
}

type sequences struct{ first, last int32 }

func newKafka(n *network, h *history, rng *rand.Rand, brokers int, topics map[string]int) *cluster {
	k := &cluster{
		net: n, history: h, rng: rng, topics: make(map[string][]*partition),
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

// up has n take connections.
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

// fail has n drop its connections and take no others; its partitions move.
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

// partitions returns all partitions, in the order of topics' names. The lock is held.
func (k *cluster) partitions() []*partition {
	var all []*partition
	for _, name := range slices.Sorted(maps.Keys(k.topics)) {
		all = append(all, k.topics[name]...)
	}
	return all
}

// move gives a partition another leader, or none.
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

// depose leaves a topic without leaders.
func (k *cluster) depose(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.topics[topic] {
		p.leader = noLeader
	}
	k.history.note("kafka: topic %s has no leader", topic)
}

// forgetLeaders has a broker name the present leaders whatever becomes of them, or, with false, not any more.
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

// leaderOf returns who leads a partition, according to n. The lock is held.
func (n *node) leaderOf(p *partition) int {
	if leader, ok := n.stale[p]; ok {
		return leader
	}
	return p.leader
}

// setUnsafe has no records of a topic stored, for want of replicas.
func (k *cluster) setUnsafe(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsafe = topic
}

// grow gives a topic one more partition: keys move.
func (k *cluster) grow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	topic := topics[k.rng.IntN(len(topics))]
	k.create(topic, 1)
	k.history.note("kafka: topic %s has %d partitions", topic, len(k.topics[topic]))
}

// heal has every broker up, every partition led, and everything answered.
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

// cure has poison taken from now on.
func (k *cluster) cure() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.antidote = true
	k.history.note("kafka: takes poison now")
}

// produce appends a batch as a leader does and returns the code of its answer. The lock is
// held.
func (k *cluster) produce(n *node, c *conn, topic string, answer *kmsg.ProduceResponseTopicPartition, batch []byte) error {
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
	if !k.antidote && topic != deadLetters {
		if k.judge(records, answer); len(answer.ErrorRecords) > 0 {
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

// judge names the records of a batch that are not taken.
func (k *cluster) judge(records []record, answer *kmsg.ProduceResponseTopicPartition) {
	for i, r := range records {
		if strings.HasPrefix(r.value, poisonous) {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset = int32(i)
			answer.ErrorRecords = append(answer.ErrorRecords, e)
		}
	}
}

// append stores a batch. The lock is held.
func (k *cluster) append(w writer, topic string, p *partition, batch []byte, records []record) {
	for _, r := range k.tamper(topic, records) {
		if topic != positions {
			at := delivery.Coordinates{Topic: topic, Partition: int32(slices.Index(k.topics[topic], p)), Offset: p.end}
			k.history.stored(w, at, r)
			p.end++
			continue
		}
		k.history.recorded(w.run, r.key, []byte(r.value))
		b := slices.Clone(batch)
		binary.BigEndian.PutUint64(b, uint64(p.end))
		p.end += int64(len(records))
		p.batches = append(p.batches, stored{p.end - 1, b, r.value})
	}
}

// sequence judges the sequence of a batch, and reports true if the partition has it already.
// https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence
func (p *partition) sequence(b *kmsg.RecordBatch) (again bool, err error) {
	batch := sequences{b.FirstSequence, int32((int64(b.FirstSequence) + int64(b.LastOffsetDelta)) & 0x7fffffff)}
	s := p.states[b.ProducerID]
	switch {
	case s == nil: // forgotten, or never seen: any sequence is a beginning
	case b.ProducerEpoch < s.epoch:
		return false, kerr.InvalidProducerEpoch
	case b.ProducerEpoch > s.epoch:
		if batch.first != 0 {
			return false, kerr.OutOfOrderSequenceNumber
		}
		s = nil
	case slices.Contains(s.batches, batch):
		return true, nil
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

// A record is what is looked at of one.
type record struct {
	key, value string
	headers    map[string]string
}

var errRecords = errors.New("malformed records")

// readRecords takes the records of a batch apart.
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
		if recover() != nil { // beyond the end
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
