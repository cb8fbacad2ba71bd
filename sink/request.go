package sink

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// A request builds produce requests. It keeps what sarama wants records as, which is four
// times the size of a small record, so that batches need not: once sarama has encoded the
// request nothing of it is used any more.
type request struct {
	batches    []sarama.RecordBatch
	records    []sarama.Record
	recordPtrs []*sarama.Record // recordPtrs[i] is &records[i]
	headers    []sarama.RecordHeader
	headerPtrs []*sarama.RecordHeader // headerPtrs[i] is &headers[i]

	usedRecords, usedHeaders int
}

// build returns the request for shipped. It aliases the frames, which have to stay until
// release.
func (r *request) build(shipped []shipment, p *Producer) *sarama.ProduceRequest {
	var records, headers int
	for i := range shipped {
		records += shipped[i].batch.records
		headers += shipped[i].batch.headers
	}
	r.reserve(len(shipped), records, headers)
	id := p.present()
	req := &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(produceTimeout / time.Millisecond),
		Version:      10,
	}
	for i := range shipped {
		part, b := shipped[i].part, shipped[i].batch
		rb := &r.batches[i]
		*rb = sarama.RecordBatch{
			Version:          2,
			Codec:            p.client.codec,
			CompressionLevel: sarama.CompressionLevelDefault,
			ProducerID:       id.id,
			ProducerEpoch:    id.epoch,
			FirstSequence:    b.sequence,
			LastOffsetDelta:  int32(b.records - 1),
		}
		r.fill(rb, b)
		req.AddBatch(part.topic.name, part.id, rb)
	}
	return req
}

// fill puts the records of b into rb.
func (r *request) fill(rb *sarama.RecordBatch, b *batch) {
	begin := r.usedRecords
	first, latest := int64(-1), int64(0)
	for f := range b.all {
		if first < 0 {
			first = f.ms
		}
		latest = max(latest, f.ms)
		rec := &r.records[r.usedRecords]
		*rec = sarama.Record{
			TimestampDelta: time.Duration(f.ms-first) * time.Millisecond,
			OffsetDelta:    int64(r.usedRecords - begin),
			Key:            f.key,
			Value:          f.value,
		}
		r.usedRecords++
		if f.headers > 0 {
			rec.Headers = r.fillHeaders(&f)
		}
	}
	rb.FirstTimestamp = time.UnixMilli(first)
	rb.MaxTimestamp = time.UnixMilli(latest)
	rb.Records = r.recordPtrs[begin:r.usedRecords]
}

func (r *request) fillHeaders(f *frame) []*sarama.RecordHeader {
	begin := r.usedHeaders
	for rest := f.rest; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		r.headers[r.usedHeaders] = sarama.RecordHeader{Key: key, Value: value}
		r.usedHeaders++
	}
	return r.headerPtrs[begin:r.usedHeaders]
}

// reserve makes room, so that pointers into it stay valid while the request is built.
func (r *request) reserve(batches, records, headers int) {
	if cap(r.batches) < batches {
		r.batches = make([]sarama.RecordBatch, batches)
	}
	r.batches = r.batches[:batches]
	if len(r.records) < records {
		r.records, r.recordPtrs = withPointers[sarama.Record](records)
	}
	if len(r.headers) < headers {
		r.headers, r.headerPtrs = withPointers[sarama.RecordHeader](headers)
	}
	r.usedRecords, r.usedHeaders = 0, 0
}

func withPointers[T any](n int) ([]T, []*T) {
	n += n / 2
	items, ptrs := make([]T, n), make([]*T, n)
	for i := range items {
		ptrs[i] = &items[i]
	}
	return items, ptrs
}

// release lets go of frames and of what sarama has encoded them into.
func (r *request) release() {
	clear(r.batches)
	clear(r.records[:r.usedRecords])
	clear(r.headers[:r.usedHeaders])
}

// codecOf returns the codec called name.
func codecOf(name string) (sarama.CompressionCodec, error) {
	switch name {
	case "none":
		return sarama.CompressionNone, nil
	case "gzip":
		return sarama.CompressionGZIP, nil
	case "snappy":
		return sarama.CompressionSnappy, nil
	case "lz4":
		return sarama.CompressionLZ4, nil
	case "zstd":
		return sarama.CompressionZSTD, nil
	}
	return 0, fmt.Errorf("sink: Compression %q is not one of none, gzip, snappy, lz4, zstd", name)
}
