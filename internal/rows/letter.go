package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Headers of a resent record. They come after all others.
const (
	resentHeader     = "resent"      // true
	ResentFromHeader = "resent_from" // the dead letter's topic, partition and offset, as in outbox.dead-letter/0:42
)

// A RejectedError is the reason why a dead letter cannot be resent. Other dead letters are not affected.
type RejectedError struct{ Reason error }

// Error returns the reason.
func (e *RejectedError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *RejectedError) Unwrap() error { return e.Reason }

// A TruncatedError says that a dead letter lacks parts of its record.
type TruncatedError struct {
	Parts string // with their sizes
	ID    string // of the row; empty: unknown
}

// Error returns the parts.
func (e *TruncatedError) Error() string { return "it is truncated (" + e.Parts + ")" }

// A RecordBuilder builds the records of dead letters. It belongs to one goroutine.
type RecordBuilder struct {
	cfg    Config
	router *encode.Router
	tables map[string]*decoder.Relation // by schema.table; nil: it does not exist
}

// NewRecordBuilder returns a RecordBuilder for dead letters. For rows, it reads the columns of
// their tables from the catalog, for which cfg.Source.Conn must be set.
func NewRecordBuilder(ctx context.Context, cfg Config) (*RecordBuilder, error) {
	router, err := cfg.NewRouter(ctx)
	if err != nil {
		return nil, err
	}
	return &RecordBuilder{cfg: cfg, router: router, tables: make(map[string]*decoder.Relation)}, nil
}

// Build returns the record of l, which aliases l. from is the dead letter's topic, partition and offset. The
// error is a *[RejectedError] if it is about l.
func (r *RecordBuilder) Build(ctx context.Context, l *encode.DeadLetter, from string) (*sink.Record, error) {
	if l.Truncated != "" {
		return nil, &RejectedError{&TruncatedError{Parts: l.Truncated, ID: l.EventID(r.cfg.Route.Columns.ID)}}
	}
	rec := l.Record
	if l.Table != "" {
		var err error
		if rec, err = r.buildFromRow(ctx, l); err != nil {
			return nil, err
		}
	} else if err := r.router.CheckTopic(rec.Topic); err != nil {
		return nil, &RejectedError{err}
	} else if !r.cfg.Route.PlacesPartition() {
		rec.Partition = sink.AnyPartition // the key's, of which there may be more by now
	}
	for _, h := range [][2]string{{resentHeader, "true"}, {ResentFromHeader, from}} {
		header, err := r.router.TextHeader(h[0], h[1])
		if err != nil {
			return nil, err
		}
		rec.Headers = append(rec.Headers, header)
	}
	return &rec, nil
}

// WithoutResent removes the headers that [RecordBuilder.Build] has added, for a destination that accepts rec only without them. It reports
// whether there were any.
func WithoutResent(rec *sink.Record) bool {
	n := slices.IndexFunc(rec.Headers, func(h sink.Header) bool { return h.Key == resentHeader })
	if n < 0 || n != len(rec.Headers)-2 || rec.Headers[n+1].Key != ResentFromHeader {
		return false
	}
	rec.Headers = rec.Headers[:n]
	return true
}

// buildFromRow builds the record of a row or message.
func (r *RecordBuilder) buildFromRow(ctx context.Context, l *encode.DeadLetter) (sink.Record, error) {
	var rec sink.Record
	var table *decoder.Relation
	if l.IsRow() {
		var err error
		if table, err = r.lookUpTable(ctx, l.Table); err != nil {
			return rec, err
		}
	}
	err := r.router.Revive(l, table, &rec)
	if IsRefusal(err) {
		err = &RejectedError{err}
	}
	return Clone(rec), err
}

// lookUpTable returns the table with the name schema.table.
func (r *RecordBuilder) lookUpTable(ctx context.Context, name string) (*decoder.Relation, error) {
	if r.cfg.Source.Conn == nil {
		return nil, &RejectedError{errors.New("it is a row, and its column types are in Postgres: set source.dsn")}
	}
	rel, known := r.tables[name]
	if !known {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
		t, err := catalog.TableNamed(ctx, r.cfg.Source, name)
		if err != nil {
			return nil, err
		}
		if t != nil {
			rel = Relation(*t)
		}
		r.tables[name] = rel
	}
	if rel == nil {
		return nil, &RejectedError{fmt.Errorf("it is a row of table %s, which no longer exists", name)}
	}
	return rel, nil
}
