package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Headers of a record that is sent again, behind all others, encoded as headers are.
const (
	ResentHeader     = "resent"      // true
	ResentFromHeader = "resent_from" // the dead letter's topic, partition and offset, as in outbox.dead-letter/0:42
)

// A RefusedError is why one letter cannot be sent again; others can.
type RefusedError struct{ Err error }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// A Reviver makes records of letters. It belongs to one goroutine.
type Reviver struct {
	cfg    relay.Config
	topic  string
	router *encode.Router
	tables map[string]*decoder.Relation // that rows name; nil: there is none such
}

// NewReviver returns a Reviver for the letters of a topic. Of cfg, Route counts, and for rows
// Source.Conn and StartupTimeout: the catalog is asked for the columns of their tables, as long as
// ctx lasts.
func NewReviver(ctx context.Context, cfg relay.Config, topic string) (*Reviver, error) {
	router, err := relay.NewRouter(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Reviver{cfg: cfg, topic: topic, router: router, tables: make(map[string]*decoder.Relation)}, nil
}

// Record returns the record of l, which aliases l. Its error is a *[RefusedError] if it is about l.
func (r *Reviver) Record(ctx context.Context, l *Letter) (*sink.Record, error) {
	rec := l.Record
	if l.Table != "" {
		var err error
		if rec, err = r.revive(ctx, l); err != nil {
			return nil, err
		}
	} else if !r.cfg.Route.PlacesPartition() {
		rec.Partition = sink.AnyPartition // the key's, of which there may be more by now
	}
	for _, h := range [][2]string{{ResentHeader, "true"}, {ResentFromHeader, r.topic + "/" + l.String()}} {
		header, err := r.router.TextHeader(h[0], h[1])
		if err != nil {
			return nil, err
		}
		rec.Headers = append(rec.Headers, header)
	}
	return &rec, nil
}

// revive makes the record of a row or message.
func (r *Reviver) revive(ctx context.Context, l *Letter) (sink.Record, error) {
	var rec sink.Record
	var table *decoder.Relation
	if l.IsRow() {
		var err error
		if table, err = r.table(ctx, l.Table); err != nil {
			return rec, err
		}
	}
	err := r.router.Revive(&l.DeadLetter, table, &rec)
	if relay.IsRefusal(err) {
		err = &RefusedError{err}
	}
	return relay.Clone(rec), err
}

// table returns the table that a row names as schema.table.
func (r *Reviver) table(ctx context.Context, name string) (*decoder.Relation, error) {
	if r.cfg.Source.Conn == nil {
		return nil, &RefusedError{errors.New("a row: which types its columns have has to be asked of Postgres, and source.dsn is not set")}
	}
	rel, known := r.tables[name]
	if !known {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
		defer cancel()
		t, err := catalog.TableNamed(ctx, r.cfg.Source.Conn, name)
		if err != nil {
			return nil, err
		}
		if t != nil {
			rel = relay.Relation(*t)
		}
		r.tables[name] = rel
	}
	if rel == nil {
		return nil, &RefusedError{fmt.Errorf("a row of table %s, which is not there any more", name)}
	}
	return rel, nil
}
