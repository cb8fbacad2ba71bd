package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// kmsgEnvelope returns a produce request without topics as another client writes it, and the
// length of its header.
func kmsgEnvelope(version int16) (msg []byte, header int) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 15000
	msg = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 7)
	header = 4 + 2 + 2 + 4 + 2 + len("test")
	if version >= flexibleProduceVersion {
		header++ // tags
	}
	return msg, header
}

// TestRequestIsReadByAnotherClient writes requests of every version and reads them with code that shares
// nothing with ours.
func TestRequestIsReadByAnotherClient(t *testing.T) {
	for version := int16(minProduceVersion); version <= envelope().Version; version++ {
		rng := rand.New(rand.NewPCG(uint64(version), 1))
		p, _ := newOfflineProducer(t, Config{}, 3)
		want := make(map[int32][]sink.Record)
		for i := range 1000 {
			rec := randomRecord(rng, uint64(i+1))
			rec.Topic, rec.Partition = "t", rng.Int32N(3)
			if err := p.Send(t.Context(), &rec); err != nil {
				t.Fatal(err)
			}
			want[rec.Partition] = append(want[rec.Partition], rec)
		}
		msg, header := kmsgEnvelope(version)
		r := request{batches: p.topics["t"].shipment(), identity: identity{id: 99, epoch: 5}}
		msg, err := r.addBatches(msg)
		if err != nil {
			t.Fatal(err)
		}
		if n := int(binary.BigEndian.Uint32(msg)); n != len(msg)-4 || !isProduce(msg) {
			t.Fatalf("version %d: a request of %d bytes says %d", version, len(msg), n+4)
		}
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		if err := req.ReadFrom(msg[header:]); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if req.Acks != -1 || req.TimeoutMillis != 15000 || len(req.Topics) != 1 || req.Topics[0].Topic != "t" {
			t.Fatalf("version %d: %+v", version, req)
		}
		got := make(map[int32][]sink.Record)
		for _, part := range req.Topics[0].Partitions {
			got[part.Partition] = readBatch(t, part.Partition, part.Records)
		}
		for _, records := range want {
			for i := range records {
				records[i].Seq = 0
			}
		}
		if !reflect.DeepEqual(want, got) { // the difference is expensive
			t.Fatalf("version %d: records differ (-sent +read):\n%s", version, cmp.Diff(want, got))
		}
	}
}

// readBatch checks the header of an uncompressed batch and returns its records.
func readBatch(t *testing.T, partition int32, raw []byte) []sink.Record {
	t.Helper()
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if sum := crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)); uint32(b.CRC) != sum {
		t.Errorf("checksum %x, want %x", uint32(b.CRC), sum)
	}
	if b.Magic != 2 || b.Attributes != 0 || b.PartitionLeaderEpoch != -1 || b.ProducerID != 99 || b.ProducerEpoch != 5 ||
		b.FirstSequence != noSequence || int(b.Length) != len(raw)-12 || b.LastOffsetDelta != b.NumRecords-1 {
		t.Errorf("header: %+v", b)
	}
	var records []sink.Record
	latest := int64(0)
	for rest := b.Records; len(rest) > 0; {
		var r kmsg.Record
		if err := r.ReadFrom(rest); err != nil {
			t.Fatal(err)
		}
		if r.OffsetDelta != int32(len(records)) {
			t.Fatalf("record %d has offset %d", len(records), r.OffsetDelta)
		}
		ms := b.FirstTimestamp + r.TimestampDelta64
		latest = max(latest, ms)
		rec := sink.Record{Topic: "t", Partition: partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(ms)}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, sink.Header{Key: h.Key, Value: h.Value})
		}
		records = append(records, rec)
		_, n := binary.Varint(rest)
		rest = rest[n+int(r.Length):]
	}
	if int(b.NumRecords) != len(records) || b.MaxTimestamp != latest {
		t.Errorf("%d records until %d, header: %+v", len(records), latest, b)
	}
	return records
}

// TestRequestGroupsTopics: a topic is named once, wherever its partitions stood in line.
func TestRequestGroupsTopics(t *testing.T) {
	p, _ := newOfflineProducer(t, Config{}, 3)
	other := p.addTopic("other")
	other.resolving = false
	other.setLimit(topicInfo{limit: 1 << 20}, false)
	other.addPartitions(3)
	r := request{}
	for i := range int32(3) {
		for _, topic := range []string{"t", "other"} {
			rec := recordFor(topic, i, fmt.Sprint(topic, i))
			if err := p.Send(t.Context(), &rec); err != nil {
				t.Fatal(err)
			}
			part := p.topics[topic].parts[i]
			r.batches = append(r.batches, sentBatch{part: part, batch: part.queue[0]})
		}
	}
	msg, header := kmsgEnvelope(10)
	msg, err := r.addBatches(msg)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version = 10
	if err := req.ReadFrom(msg[header:]); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, topic := range req.Topics {
		for _, part := range topic.Partitions {
			got = append(got, fmt.Sprint(topic.Topic, part.Partition))
		}
	}
	want := []string{"t0", "t1", "t2", "other0", "other1", "other2"}
	if diff := cmp.Diff(want, got); diff != "" || len(req.Topics) != 2 {
		t.Errorf("%d topics (-want +got):\n%s", len(req.Topics), diff)
	}
}

// TestRequestLeavesOutDroppedRecords: a batch whose last records were dropped is as long as it says.
func TestRequestLeavesOutDroppedRecords(t *testing.T) {
	p, _ := newOfflineProducer(t, Config{}, 1)
	rec := benchRecord(200, 2)
	for rec.Seq = range 10 {
		if err := p.Send(t.Context(), &rec); err != nil {
			t.Fatal(err)
		}
	}
	p.lastSeq = 6
	p.dropUnsent()
	r := request{batches: p.topics["t"].shipment()}
	if _, err := r.addBatches(envelopeOf(10)); err != nil || r.batches[0].batch.records != 7 {
		t.Errorf("a batch of %d records, want 7: %v", r.batches[0].batch.records, err)
	}
}

// TestEnvelopeIsChecked: what is not an envelope as expected is not completed.
func TestEnvelopeIsChecked(t *testing.T) {
	var r request
	if _, err := r.addBatches(envelopeOf(2)); !errors.Is(err, sarama.ErrUnsupportedVersion) || classifyRequest(err) != fatal {
		t.Errorf("version 2: %v", err)
	}
	msg := envelopeOf(10)
	msg[len(msg)-2] = 2 // one topic
	if _, err := r.addBatches(msg); classifyRequest(err) != fatal {
		t.Errorf("an envelope with a topic: %v", err)
	}
}

// TestOtherRequestsAreUnchanged: only produce requests are completed, on a connection that sarama also logs
// in again on.
func TestOtherRequestsAreUnchanged(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	conn := &watchedConn{Conn: here, request: &request{}}
	login := []byte("\x00\x00\x00\x04\x00\x24\x00\x01") // SaslAuthenticate
	for _, msg := range [][]byte{login, envelopeOf(10)} {
		wrote := make(chan error, 1)
		go func() {
			_, err := conn.Write(msg)
			wrote <- err
		}()
		got := make([]byte, len(msg))
		if _, err := there.Read(got); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil || !bytes.Equal(got, msg) { // nothing is shipped
			t.Errorf("wrote %x, which arrived as %x: %v", msg, got, err)
		}
	}
}
