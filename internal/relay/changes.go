package relay

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// update takes a changed row: it ends the session, is dropped, or is an event anew when it has
// another identity. Which one depends on the row and the configuration alone, so that the rows
// of a transaction have the same indexes when it comes again.
func (p *publication) update(ctx context.Context, u *decoder.Update) error {
	if p.updates.policy == encode.UpdateStop {
		return p.unexpected("UPDATE", u.Relation)
	}
	index, rec := p.tx.rows, &p.rec
	routed, err := p.router.RouteUpdate(p.tx.Tx, index, u, rec)
	if !routed && err == nil {
		p.updates.drop(ctx, u.Relation)
		return nil
	}
	p.tx.rows++
	if p.deliveredBefore(index) {
		return p.tracker.Ack(p.tracker.Next())
	}
	if err != nil {
		if rec, err = p.deadRow(index, &decoder.Insert{Relation: u.Relation, Row: u.New}, err); err != nil {
			return err
		}
	}
	return p.send(ctx, rec)
}

// updates is what becomes of changed rows, and the log of those that are dropped.
type updates struct {
	policy encode.Updates
	log    *slog.Logger
	seen   map[string]*dropped // by table
}

// dropped counts the updates of a table that were dropped since that was logged.
type dropped struct {
	n      int
	logged time.Time
}

// dropInterval is how often dropped updates of a table are logged.
const dropInterval = time.Minute

func newUpdates(policy encode.Updates, log *slog.Logger) updates {
	if policy == "" {
		policy = encode.UpdateStop
	}
	return updates{policy: policy, log: log, seen: make(map[string]*dropped)}
}

func (u *updates) drop(ctx context.Context, rel *decoder.Relation) {
	level := slog.LevelWarn
	switch u.policy {
	case encode.UpdateError:
		level = slog.LevelError
	case encode.UpdateIgnore, encode.UpdateStop:
		return
	case encode.UpdateWarn:
	}
	table := rel.Namespace + "." + rel.Name
	d := u.seen[table]
	if d == nil {
		d = &dropped{}
		u.seen[table] = d
	}
	d.n++
	now := time.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < dropInterval {
		return
	}
	u.log.Log(ctx, level, "updates dropped: only inserted rows are events",
		slog.String("table", table), slog.Int("number", d.n))
	*d = dropped{logged: now}
}

// unexpected is a change that the publication did not send when the session began, or an
// UPDATE where none is expected.
func (p *publication) unexpected(kind string, relations ...*decoder.Relation) error {
	e := &ChangeError{Kind: kind, CommitLSN: p.tx.CommitLSN}
	if len(relations) > 0 {
		e.Table = relations[0].Namespace + "." + relations[0].Name
	}
	return e
}

// A ChangeError is a change of an outbox row other than its insertion.
type ChangeError struct {
	Kind      string // UPDATE, DELETE, TRUNCATE
	Table     string
	CommitLSN pglogrepl.LSN
}

// Error names the change, its table and its transaction.
func (e *ChangeError) Error() string {
	return fmt.Sprintf("transaction %s: %s of %s is published, but only INSERTs are events", e.CommitLSN, e.Kind, e.Table)
}
