package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

var _ sink.ReaderOpener = Config{}

// OpenReader implements [sink.ReaderOpener]. A destination has one partition, 0. Its offsets are sequences of the stream, which may
// have other subjects too.
func (c Config) OpenReader(log *slog.Logger) (sink.Reader, error) { return c.newClient(log) }

// OpenDeadLetters implements [sink.ReaderOpener].
func (c Config) OpenDeadLetters(ctx context.Context, subject string, log *slog.Logger) (sink.DeadLetters, error) {
	r, err := c.newClient(log)
	if err != nil {
		return nil, err
	}
	return sink.ReadDeadLetters(ctx, r, subject, func(subject string) error { return fmt.Errorf("%w: %s", adviseMissing(subject), subject) })
}

// OffsetRanges implements [sink.Reader].
func (c *client) OffsetRanges(ctx context.Context, subjects ...string) (map[string][]sink.OffsetRange, error) {
	ranges := make(map[string][]sink.OffsetRange, len(subjects))
	for _, subject := range subjects {
		err := c.retry(ctx, func(ctx context.Context, l *link) error {
			stream, err := openStream(ctx, l, subject)
			if stream != nil {
				ranges[subject] = []sink.OffsetRange{rangeOf(stream.CachedInfo().State)}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look up the stream of %s: %w", subject, err)
		}
	}
	return ranges, nil
}

// rangeOf returns the sequences of a stream, of which the first one is 1.
func rangeOf(state jetstream.StreamState) sink.OffsetRange {
	offsets := sink.OffsetRange{Begin: int64(max(state.FirstSeq, 1)), End: int64(state.LastSeq) + 1}
	if offsets.Begin == 1 && state.NumDeleted == 0 {
		offsets.Begin = 0
	}
	return offsets
}

// Read implements [sink.Reader].
func (c *client) Read(ctx context.Context, subject string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	for offsets.Begin < offsets.End { // an attempt takes limited time
		var failed error // of fn
		err := c.retry(ctx, func(attempt context.Context, l *link) (err error) {
			offsets.Begin, failed, err = readSome(attempt, l, subject, offsets, fn)
			return err
		})
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return fmt.Errorf("read %s: %w", subject, err)
		}
	}
	return nil
}

// readTime is how long an attempt to read goes on.
const readTime = 5 * time.Second

// readSome calls fn for messages of a range, and returns where the rest of the range begins, and the error of fn.
func readSome(ctx context.Context, l *link, subject string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) (next int64, failed, err error) {
	messages, err := openMessages(ctx, l, subject, offsets)
	switch {
	case err != nil:
		return offsets.Begin, nil, err
	case messages == nil:
		return offsets.End, nil, nil
	}
	defer messages.Stop()
	ctx, release := l.bind(ctx)
	defer release()
	for start := time.Now(); time.Since(start) < readTime && offsets.Begin < offsets.End; {
		m, pending, err := nextMessage(ctx, messages)
		if err != nil {
			return offsets.Begin, nil, err
		}
		if int64(m.Sequence) < offsets.End {
			if err := fn(decode(m)); err != nil {
				return offsets.Begin, err, nil
			}
		}
		if offsets.Begin = int64(m.Sequence) + 1; pending == 0 {
			return offsets.End, nil, nil
		}
	}
	return offsets.Begin, nil, nil
}

// openMessages returns the messages of a subject from the beginning of a range on, or nil if there are none.
func openMessages(ctx context.Context, l *link, subject string, offsets sink.OffsetRange) (jetstream.MessagesContext, error) {
	stream, err := openStream(ctx, l, subject)
	if err != nil || stream == nil {
		return nil, err
	}
	consumer, err := call(ctx, l, func(ctx context.Context) (jetstream.Consumer, error) {
		return stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(offsets.Begin, 1)),
		})
	})
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return nil, err
	}
	return consumer.Messages()
}

// nextMessage returns the next message, and how many follow it.
func nextMessage(ctx context.Context, messages jetstream.MessagesContext) (m *jetstream.RawStreamMsg, pending uint64, err error) {
	msg, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, 0, err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, 0, err
	}
	return &jetstream.RawStreamMsg{
		Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp,
	}, meta.NumPending, nil
}
