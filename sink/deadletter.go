package sink

import (
	"context"
	"errors"
)

// DeadLetters reads a dead-letter destination. It is a [Reader] of one destination.
type DeadLetters interface {
	// OffsetRanges is [Reader.OffsetRanges] for the destination. The error wraps ErrMissing if the destination does not exist.
	OffsetRanges(ctx context.Context) ([]OffsetRange, error)

	// Read is [Reader.Read] for the destination.
	Read(ctx context.Context, offsets OffsetRange, fn func(*StoredRecord) error) error

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
	if _, err := d.OffsetRanges(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return d, nil
}

// OffsetRanges implements [DeadLetters].
func (d *deadLetters) OffsetRanges(ctx context.Context) ([]OffsetRange, error) {
	ranges, err := d.reader.OffsetRanges(ctx, d.destination)
	if err == nil && ranges[d.destination] == nil {
		err = d.missing(d.destination)
	}
	return ranges[d.destination], err
}

// Read implements [DeadLetters].
func (d *deadLetters) Read(ctx context.Context, offsets OffsetRange, fn func(*StoredRecord) error) error {
	return d.reader.Read(ctx, d.destination, offsets, fn)
}

// Close implements [DeadLetters].
func (d *deadLetters) Close() error { return d.reader.Close() }
