package sink

import (
	"context"
	"errors"
)

// DeadLetters reads a dead-letter destination. It is a [Reader] of one destination.
type DeadLetters interface {
	// Spans is [Reader.Spans] for the destination. The error wraps ErrMissing if the destination does not exist.
	Spans(ctx context.Context) ([]Span, error)

	// Read is [Reader.Read] for the destination.
	Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error

	// Close closes the DeadLetters.
	Close() error
}

// deadLetters is the DeadLetters that a Reader reads.
type deadLetters struct {
	reader      Reader
	destination string
	missing     func(destination string) error
}

// ReadDeadLetters returns what reads the dead letters of a destination with r, for a broker whose offsets name a record for ever.
// missing returns the error for a destination that does not exist. If there is an error, r is closed.
func ReadDeadLetters(ctx context.Context, r Reader, destination string, missing func(destination string) error) (DeadLetters, error) {
	d := &deadLetters{r, destination, missing}
	if _, err := d.Spans(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return d, nil
}

// Spans implements [DeadLetters].
func (d *deadLetters) Spans(ctx context.Context) ([]Span, error) {
	spans, err := d.reader.Spans(ctx, d.destination)
	if err == nil && spans[d.destination] == nil {
		err = d.missing(d.destination)
	}
	return spans[d.destination], err
}

// Read implements [DeadLetters].
func (d *deadLetters) Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error {
	return d.reader.Read(ctx, d.destination, span, fn)
}

// Close implements [DeadLetters].
func (d *deadLetters) Close() error { return d.reader.Close() }
