package twin

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// serve responds to the requests of one connection, one after the other.
func (k *cluster) serve(n *node, c *conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		req, correlation, err := parse(b)
		if err != nil {
			k.history.violated("run %d: a broken request: %v", c.run, err)
			return
		}
		res := k.answer(n, c, req, c.in.written)
		if res == nil {
			return
		}
		if _, err := c.Write(frame(res, correlation)); err != nil {
			return
		}
		c.swift(false) // the handshake is over
	}
}

// parse parses a request with its header.
// https://kafka.apache.org/protocol#protocol_messages
func parse(b []byte) (kmsg.Request, int32, error) {
	r := kbin.Reader{Src: b}
	key, version, correlation := r.Int16(), r.Int16(), r.Int32()
	r.NullableString() // client id
	req := kmsg.RequestForKey(key)
	if req == nil {
		return nil, 0, kerr.UnsupportedVersion
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := r.Complete(); err != nil {
		return nil, 0, err
	}
	return req, correlation, req.ReadFrom(r.Src)
}

// frame returns a response with its header.
func frame(res kmsg.Response, correlation int32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(correlation))
	if res.IsFlexible() && res.Key() != int16(kmsg.ApiVersions) {
		b = append(b, 0) // tags
	}
	b = res.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// answer returns the response to a request, or nil if the broker closes the connection instead.
func (k *cluster) answer(n *node, c *conn, req kmsg.Request, written time.Time) kmsg.Response {
	k.mu.Lock()
	f := k.fates.draw(k, c, req)
	k.mu.Unlock()
	if f.kind != untouched {
		k.history.note("kafka: broker %d, run %d, %s: %s", n.id, c.run, kmsg.NameForKey(req.Key()), f)
	}
	if f.kind == late { // the broker handles the request after it has closed the connection
		c.cut(false)
	}
	if f.untilRead {
		k.awaitReader(req.(*kmsg.ProduceRequest), f.before)
	} else {
		time.Sleep(f.before)
	}
	if produce, ok := req.(*kmsg.ProduceRequest); ok && produce.Topics[0].Topic != positions {
		k.history.wrote(c.run, written)
	}
	res := k.respond(n, c, req, f)
	if f.kind == lost {
		c.cut(false)
		return nil
	}
	time.Sleep(f.after)
	return res
}

// awaitReader waits until somebody has read a partition of the request, or for d.
func (k *cluster) awaitReader(req *kmsg.ProduceRequest, d time.Duration) {
	read := make(chan struct{})
	once := sync.OnceFunc(func() { close(read) })
	k.mu.Lock()
	for _, t := range req.Topics {
		for _, tp := range t.Partitions {
			if ps := k.topics[t.Topic]; int(tp.Partition) < len(ps) {
				p := ps[tp.Partition]
				p.onRead = append(p.onRead, once)
			}
		}
	}
	k.mu.Unlock()
	select {
	case <-read:
	case <-time.After(d):
	}
}

func (k *cluster) respond(n *node, c *conn, req kmsg.Request, f fate) kmsg.Response {
	k.mu.Lock()
	defer k.mu.Unlock()
	res := req.ResponseKind()
	res.SetVersion(req.GetVersion())
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		k.versions(res.(*kmsg.ApiVersionsResponse))
	case *kmsg.MetadataRequest:
		k.metadata(n, req, res.(*kmsg.MetadataResponse))
	case *kmsg.FindCoordinatorRequest:
		k.findCoordinator(n, res.(*kmsg.FindCoordinatorResponse), f)
	case *kmsg.InitProducerIDRequest:
		k.initProducer(req, res.(*kmsg.InitProducerIDResponse), f)
	case *kmsg.AddPartitionsToTxnRequest:
		k.addPartitions(req, res.(*kmsg.AddPartitionsToTxnResponse), f)
	case *kmsg.EndTxnRequest:
		k.endTxn(req, res.(*kmsg.EndTxnResponse), f)
	case *kmsg.DescribeConfigsRequest:
		describeConfigs(req, res.(*kmsg.DescribeConfigsResponse))
	case *kmsg.CreateTopicsRequest:
		k.createTopics(req, res.(*kmsg.CreateTopicsResponse))
	case *kmsg.ListOffsetsRequest:
		k.offsets(n, req, res.(*kmsg.ListOffsetsResponse), f)
	case *kmsg.FetchRequest:
		k.fetch(n, req, res.(*kmsg.FetchResponse), f)
	case *kmsg.ProduceRequest:
		k.produceAll(n, c, req, res.(*kmsg.ProduceResponse), f)
	default:
		k.history.violated("run %d: unexpected request %s", c.run, kmsg.NameForKey(req.Key()))
	}
	return res
}

func (k *cluster) versions(res *kmsg.ApiVersionsResponse) {
	for _, key := range []kmsg.Key{
		kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.ApiVersions, kmsg.CreateTopics,
		kmsg.InitProducerID, kmsg.DescribeConfigs, kmsg.FindCoordinator, kmsg.AddPartitionsToTxn, kmsg.EndTxn,
	} {
		v := kmsg.NewApiVersionsResponseApiKey()
		v.ApiKey, v.MaxVersion = key.Int16(), min(12, kmsg.RequestForKey(key.Int16()).MaxVersion())
		res.ApiKeys = append(res.ApiKeys, v)
	}
}

func (k *cluster) metadata(asked *node, req *kmsg.MetadataRequest, res *kmsg.MetadataResponse) {
	for _, n := range k.nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID = int32(n.id)
		b.Host, b.Port = hostPort(n.addr)
		res.Brokers = append(res.Brokers, b)
	}
	for _, wanted := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = wanted.Topic
		if k.topics[*t.Topic] == nil {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		for i, p := range k.topics[*t.Topic] {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader = int32(i), int32(asked.leaderOf(p))
			if mp.Leader == noLeader {
				mp.ErrorCode = kerr.LeaderNotAvailable.Code
			}
			t.Partitions = append(t.Partitions, mp)
		}
		res.Topics = append(res.Topics, t)
	}
}

func hostPort(addr string) (string, int32) {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return host, int32(n)
}

func describeConfigs(req *kmsg.DescribeConfigsRequest, res *kmsg.DescribeConfigsResponse) {
	values := map[string]string{"max.message.bytes": "1000012", "cleanup.policy": "compact"}
	for _, asked := range req.Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		for _, name := range asked.ConfigNames {
			entry := kmsg.NewDescribeConfigsResponseResourceConfig()
			value := values[name]
			entry.Name, entry.Value = name, &value
			r.Configs = append(r.Configs, entry)
		}
		res.Resources = append(res.Resources, r)
	}
}

func (k *cluster) createTopics(req *kmsg.CreateTopicsRequest, res *kmsg.CreateTopicsResponse) {
	for _, asked := range req.Topics {
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic = asked.Topic
		if k.topics[t.Topic] != nil {
			t.ErrorCode = kerr.TopicAlreadyExists.Code
		} else {
			k.create(t.Topic, max(1, int(asked.NumPartitions)))
		}
		res.Topics = append(res.Topics, t)
	}
}

// readable is like of, but returns the error of the request's fate if it has one.
func (k *cluster) readable(n *node, topic string, partition int32, f fate) (*partition, int16) {
	if e, ok := errors.AsType[*kerr.Error](f.err); ok {
		return nil, e.Code
	}
	return k.of(n, topic, partition)
}

// of returns a partition if n leads it, and otherwise an error code.
func (k *cluster) of(n *node, topic string, partition int32) (*partition, int16) {
	ps := k.topics[topic]
	switch {
	case int(partition) >= len(ps):
		return nil, kerr.UnknownTopicOrPartition.Code
	case ps[partition].leader != n.id:
		return nil, kerr.NotLeaderForPartition.Code
	}
	return ps[partition], 0
}

func (k *cluster) offsets(n *node, req *kmsg.ListOffsetsRequest, res *kmsg.ListOffsetsResponse, f fate) {
	for _, asked := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = asked.Topic
		for _, ap := range asked.Partitions {
			lp := kmsg.NewListOffsetsResponseTopicPartition()
			lp.Partition = ap.Partition
			p, code := k.readable(n, t.Topic, ap.Partition, f)
			lp.ErrorCode = code
			if p != nil && ap.Timestamp == -1 {
				lp.Offset = p.end
			} else {
				lp.Offset = 0
			}
			t.Partitions = append(t.Partitions, lp)
		}
		res.Topics = append(res.Topics, t)
	}
}

func (k *cluster) fetch(n *node, req *kmsg.FetchRequest, res *kmsg.FetchResponse, f fate) {
	for _, asked := range req.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic = asked.Topic
		for _, ap := range asked.Partitions {
			fp := kmsg.NewFetchResponseTopicPartition()
			fp.Partition = ap.Partition
			p, code := k.readable(n, t.Topic, ap.Partition, f)
			fp.ErrorCode = code
			if p != nil {
				for _, read := range p.onRead {
					read()
				}
				p.onRead = nil
				fp.HighWatermark, fp.LastStableOffset, fp.RecordBatches = p.end, p.end, []byte{} // no null, as Kafka
				for _, b := range p.batches {
					if b.last >= ap.FetchOffset && len(fp.RecordBatches) < 4<<10 {
						fp.RecordBatches = append(fp.RecordBatches, b.bytes...)
					}
				}
			}
			t.Partitions = append(t.Partitions, fp)
		}
		res.Topics = append(res.Topics, t)
	}
}

// produceAll handles a produce request according to its fate.
func (k *cluster) produceAll(n *node, c *conn, req *kmsg.ProduceRequest, res *kmsg.ProduceResponse, f fate) {
	res.ThrottleMillis = int32(f.throttle.Milliseconds())
	cured := k.cured
	if f.kind == late { // the broker has checked the records when it received them, and a retry may have been rejected since
		cured = 0
	}
	for _, rt := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			answer := kmsg.NewProduceResponseTopicPartition()
			answer.Partition = rp.Partition
			err := f.instead(k, rt.Topic, rp.Partition)
			if err == nil {
				err = k.produce(n, c, rt.Topic, &answer, rp.Records, cured)
			}
			if err == nil && f.kind == failed {
				err = f.err
			}
			if e, ok := errors.AsType[*kerr.Error](err); ok {
				answer.ErrorCode = e.Code
			}
			if answer.ErrorCode == kerr.NotLeaderForPartition.Code {
				k.hint(c.rng, t.Topic, &answer, res)
			}
			t.Partitions = append(t.Partitions, answer)
		}
		res.Topics = append(res.Topics, t)
	}
}

// hint adds the leader to half of the responses (KIP-951).
func (k *cluster) hint(rng *rand.Rand, topic string, answer *kmsg.ProduceResponseTopicPartition, res *kmsg.ProduceResponse) {
	ps := k.topics[topic]
	if int(answer.Partition) >= len(ps) || ps[answer.Partition].leader == noLeader || rng.IntN(2) == 0 {
		return
	}
	n := k.nodes[ps[answer.Partition].leader]
	answer.CurrentLeader.LeaderID = int32(n.id)
	b := kmsg.NewProduceResponseBroker()
	b.NodeID = int32(n.id)
	b.Host, b.Port = hostPort(n.addr)
	res.Brokers = append(res.Brokers, b)
}
