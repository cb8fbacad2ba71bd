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
		var offsets sink.OffsetRange
		found := false
		err := c.retry(ctx, func(ctx context.Context, l *link) error {
			stream, err := openStream(ctx, l, subject)
			if err != nil || stream == nil {
				return err
			}
			state := stream.CachedInfo().State
			offsets, found = sink.OffsetRange{Begin: int64(max(state.FirstSeq, 1)), End: int64(state.LastSeq) + 1}, true
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look up the stream of %s: %w", subject, err)
		}
		if found {
			ranges[subject] = []sink.OffsetRange{offsets}
		}
	}
	return ranges, nil
}

// openStream returns the stream that has a subject, or nil if there is none.
func openStream(ctx context.Context, l *link, subject string) (stream jetstream.Stream, err error) {
	name, err := streamOf(ctx, l, subject)
	if err != nil || name == "" {
		return nil, err
	}
	err = l.call(ctx, func(ctx context.Context) error {
		stream, err = l.js.Stream(ctx, name)
		return err
	})
	return stream, err
}

// Read implements [sink.Reader].
func (c *client) Read(ctx context.Context, subject string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	if offsets.Begin >= offsets.End {
		return nil
	}
	for offsets.Begin < offsets.End { // an attempt takes limited time
		var fnErr error
		err := c.retry(ctx, func(attempt context.Context, l *link) error {
			next, err := readSome(attempt, l, subject, offsets, func(rec *sink.StoredRecord) error {
				fnErr = fn(rec)
				return fnErr
			})
			offsets.Begin = next
			if fnErr == nil {
				return err
			}
			return nil // no reason to retry
		})
		switch {
		case fnErr != nil:
			return fnErr
		case err != nil:
			return fmt.Errorf("read %s: %w", subject, err)
		}
	}
	return nil
}

// readTime is how long an attempt to read goes on.
const readTime = 5 * time.Second

// readSome calls fn for messages of a range, and returns where the rest of the range begins.
func readSome(ctx context.Context, l *link, subject string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) (int64, error) {
	stream, err := openStream(ctx, l, subject)
	if err != nil {
		return offsets.Begin, err
	}
	if stream == nil {
		return offsets.End, nil
	}
	consumer, err := openConsumer(ctx, l, stream, subject, offsets)
	if err != nil {
		return offsets.Begin, err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return offsets.End, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return offsets.Begin, err
	}
	defer messages.Stop()
	ctx, release := l.bind(ctx)
	defer release()
	for start := time.Now(); time.Since(start) < readTime; {
		m, pending, err := nextMessage(ctx, messages)
		if err != nil {
			return offsets.Begin, err
		}
		if int64(m.Sequence) >= offsets.End {
			return offsets.End, nil
		}
		if err := fn(decode(m)); err != nil {
			return offsets.Begin, err
		}
		if offsets.Begin = int64(m.Sequence) + 1; pending == 0 || offsets.Begin >= offsets.End {
			return offsets.End, nil
		}
	}
	return offsets.Begin, nil
}

func openConsumer(ctx context.Context, l *link, stream jetstream.Stream, subject string, offsets sink.OffsetRange) (consumer jetstream.Consumer, err error) {
	err = l.call(ctx, func(ctx context.Context) error {
		consumer, err = stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(offsets.Begin),
		})
		return err
	})
	return consumer, err
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
