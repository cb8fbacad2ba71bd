package kafka

import (
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// zstdWindow is how far back zstd looks for a repetition. It decides over the encoder's
// memory, of which the default would take twice 4 MiB, and hardly over what comes out.
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

// A compressor compresses the records of one batch after the other, with what it needs for
// that kept between them. The zero value of an encoder is made when it is first needed. No
// format gets a checksum of its own, since the batch has one.
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

// compress returns records as codec makes them, valid until the next call.
func (c *compressor) compress(codec sarama.CompressionCodec, records []byte) ([]byte, error) {
	c.out.b = c.out.b[:0]
	var err error
	switch codec {
	case sarama.CompressionGZIP:
		err = c.writeGzip(records)
	case sarama.CompressionSnappy:
		// Where a block might not fit behind what is there, it would be made elsewhere.
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

// writeLZ4 makes blocks of 64 KiB, as the Java client does: a consumer reserves memory for
// the largest there may be.
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
