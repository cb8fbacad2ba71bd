package sink

import "context"

// DeadLetters reads a dead-letter destination. It is a [Reader] of one destination.
type DeadLetters interface {
	// Spans is [Reader.Spans] for the destination.
	Spans(ctx context.Context) ([]Span, error)

	// Read is [Reader.Read] for the destination.
	Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error

	// Close closes the DeadLetters.
	Close() error
}
