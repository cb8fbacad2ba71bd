package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deadLetters is the [sink.DeadLetters] for a subject.
type deadLetters struct {
	reader  *reader
	subject string
}

// OpenDeadLetters implements [sink.Broker].
func (c Config) OpenDeadLetters(ctx context.Context, subject string, log *slog.Logger) (sink.DeadLetters, error) {
	r, err := c.openReader(log)
	if err != nil {
		return nil, err
	}
	d := &deadLetters{reader: r, subject: subject}
	if _, err := d.Spans(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return d, nil
}

// Spans implements [sink.DeadLetters].
func (d *deadLetters) Spans(ctx context.Context) ([]sink.Span, error) {
	spans, err := d.reader.Spans(ctx, d.subject)
	if err == nil && spans[d.subject] == nil {
		err = fmt.Errorf("%w: %s", adviseMissing(d.subject), d.subject)
	}
	return spans[d.subject], err
}

// Read implements [sink.DeadLetters].
func (d *deadLetters) Read(ctx context.Context, span sink.Span, fn func(*sink.StoredRecord) error) error {
	return d.reader.Read(ctx, d.subject, span, fn)
}

// Close implements [sink.DeadLetters].
func (d *deadLetters) Close() error { return d.reader.Close() }
