package kafka

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxRequestBytes is the maximum size of a request, unless its only batch is larger.
const maxRequestBytes = 1 << 20

// A request builds the produce requests of a sender. sarama encodes an envelope without batches, and addBatches adds
// the batches.
//
// https://kafka.apache.org/protocol#The_Messages_Produce
type request struct {
	batches  []sentBatch
	identity identity
	codec    sarama.CompressionCodec

	// Reused memory.
	buf        []byte
	records    []byte // of one batch, before compression
	compressor compressor
}

// addBatches returns the request with envelope msg and the batches. The result is valid until releaseBatches.
func (r *request) addBatches(msg []byte) ([]byte, error) {
	head, flexible, err := openEnvelope(msg)
	if err != nil {
		return nil, err
	}
	w := requestWriter{buf: r.reserveBuffer(len(msg)), flexible: flexible}
	w.buf = append(w.buf, head...)
	if err := r.writeTopics(&w); err != nil {
		return nil, err
	}
	r.buf = w.buf
	if len(w.buf) > int(sarama.MaxRequestSize) {
		return nil, sarama.PacketEncodingError{Info: fmt.Sprintf("the produce request has %d bytes", len(w.buf))}
	}
	binary.BigEndian.PutUint32(w.buf, uint32(len(w.buf)-4))
	return w.buf, nil
}

// reserveBuffer returns a buffer for a request with an envelope of n bytes.
func (r *request) reserveBuffer(n int) []byte {
	for i := range r.batches {
		n += r.batches[i].batch.size + len(r.batches[i].part.topic.name) + 32
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, 0, n+n/8)
	}
	return r.buf[:0]
}

func (r *request) writeTopics(w *requestWriter) error {
	slices.SortStableFunc(r.batches, func(a, b sentBatch) int {
		return cmp.Compare(a.part.topic.index, b.part.topic.index)
	})
	topics := 0
	for i := range r.batches {
		if i == 0 || r.batches[i].part.topic != r.batches[i-1].part.topic {
			topics++
		}
	}
	w.arrayLength(topics)
	for rest := r.batches; len(rest) > 0; {
		t := rest[0].part.topic
		n := 1
		for n < len(rest) && rest[n].part.topic == t {
			n++
		}
		w.string(t.name)
		w.arrayLength(n)
		for i := range rest[:n] {
			if err := r.writeBatch(w, rest[i].part.id, rest[i].batch); err != nil {
				return err
			}
		}
		w.emptyTags()
		rest = rest[n:]
	}
	w.emptyTags()
	return nil
}

func (r *request) writeBatch(w *requestWriter, partition int32, b *batch) error {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(partition))
	var latest int64
	var begin int
	if r.codec == sarama.CompressionNone {
		begin = w.reserveBatch(b.size)
		w.buf, latest = b.appendRecords(w.buf)
	} else {
		r.records, latest = b.appendRecords(r.records[:0])
		records, err := r.compressor.compress(r.codec, r.records)
		if err != nil {
			return sarama.PacketEncodingError{Info: fmt.Sprintf("compress a batch: %v", err)}
		}
		begin = w.reserveBatch(batchOverhead + len(records))
		w.buf = append(w.buf, records...)
	}
	if size := len(w.buf) - begin; r.codec == sarama.CompressionNone && size != b.size {
		return sarama.PacketEncodingError{Info: fmt.Sprintf("a batch of %d bytes was counted as %d", size, b.size)}
	}
	writeBatchHeader(w.buf[begin:], b, latest, r.codec, r.identity)
	w.emptyTags()
	return nil
}

// releaseBatches drops the batches, and releases memory that only a very large record needed.
func (r *request) releaseBatches() {
	r.batches = nil
	const enough = 2 * maxRequestBytes
	if cap(r.buf) > enough {
		r.buf = nil
	}
	if cap(r.records) > enough {
		r.records = nil
	}
	if cap(r.compressor.out.b) > enough {
		r.compressor.out.b = nil
	}
}

// A requestWriter appends the parts of a request other than batches. In flexible versions, a length is an unsigned
// varint of the length plus one, and tagged fields end a structure.
type requestWriter struct {
	buf      []byte
	flexible bool
}

// arrayLength appends the length of an array.
func (w *requestWriter) arrayLength(n int) {
	if w.flexible {
		w.buf = binary.AppendUvarint(w.buf, uint64(n)+1)
	} else {
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
	}
}

func (w *requestWriter) string(s string) {
	if w.flexible {
		w.arrayLength(len(s))
	} else {
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(s)))
	}
	w.buf = append(w.buf, s...)
}

// reserveBatch appends the length n of a batch and room for its header. It returns the start of the batch.
func (w *requestWriter) reserveBatch(n int) int {
	w.arrayLength(n)
	begin := len(w.buf)
	w.buf = append(w.buf, make([]byte, batchOverhead)...)
	return begin
}

func (w *requestWriter) emptyTags() {
	if w.flexible {
		w.buf = append(w.buf, 0)
	}
}

// zstdWindow is the window size of zstd. It determines the memory of the encoder, which would be twice 4 MiB by
// default, and has little effect on the compression ratio.
const zstdWindow = 256 << 10

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

// A compressor compresses the records of batches, and reuses its encoders and memory. It creates an encoder on first
// use. The compressed formats have no checksums, because the batch has one.
type compressor struct {
	gzip *gzip.Writer
	lz4  *lz4.Writer
	zstd *zstd.Encoder
	out  appender
}

// An appender is a buffer to write to.
type appender struct{ b []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.b = append(a.b, b...)
	return len(b), nil
}

// compress returns the compressed records. The result is valid until the next call.
func (c *compressor) compress(codec sarama.CompressionCodec, records []byte) ([]byte, error) {
	c.out.b = c.out.b[:0]
	var err error
	switch codec {
	case sarama.CompressionGZIP:
		err = c.writeGzip(records)
	case sarama.CompressionSnappy:
		// If the block might not fit into the rest of the buffer, snappy would allocate another one.
		c.out.b = xerial.Encode(slices.Grow(c.out.b, len(records)+len(records)/4+64), records)
	case sarama.CompressionLZ4:
		err = c.writeLZ4(records)
	case sarama.CompressionZSTD:
		err = c.writeZstd(records)
	case sarama.CompressionNone:
		return records, nil
	}
	return c.out.b, err
}

func (c *compressor) writeGzip(records []byte) error {
	if c.gzip == nil {
		c.gzip = gzip.NewWriter(nil)
	}
	c.gzip.Reset(&c.out)
	if _, err := c.gzip.Write(records); err != nil {
		return err
	}
	return c.gzip.Close()
}

// writeLZ4 uses blocks of 64 KiB like the Java client, because a consumer allocates memory for the maximum block
// size.
func (c *compressor) writeLZ4(records []byte) error {
	if c.lz4 == nil {
		c.lz4 = lz4.NewWriter(nil)
		if err := c.lz4.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			return err
		}
	}
	c.lz4.Reset(&c.out)
	if _, err := c.lz4.Write(records); err != nil {
		return err
	}
	return c.lz4.Close()
}

func (c *compressor) writeZstd(records []byte) error {
	if c.zstd == nil {
		var err error
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true)); err != nil {
			return err
		}
	}
	c.out.b = c.zstd.EncodeAll(records, c.out.b)
	return nil
}
