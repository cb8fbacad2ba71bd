package relay

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendUpdate handles an updated row. It returns an error that stops the relay, drops the update, or
// sends it as a new event if the id of the row has changed. Only the row and the configuration decide
// which, so that rows have the same indexes when Postgres resends their transaction.
func (p *pump) sendUpdate(ctx context.Context, u *decoder.Update) error {
	if p.updates.onUpdate == encode.UpdateStop {
		return p.unexpectedChange("UPDATE", u.Relation)
	}
	index := p.tx.rows
	p.forgetRecord()
	routed, err := p.router.RouteUpdate(p.tx.Tx, index, u, &p.record)
	if !routed && err == nil {
		p.updates.dropUpdate(ctx, u.Relation)
		return nil
	}
	p.tx.rows++
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) {
		if err != nil {
			return p.deadLetterRow(index, &decoder.Insert{Relation: u.Relation, Row: u.New}, err)
		}
		return &p.record, nil
	})
}

// An updatePolicy decides what happens to updated rows, and logs the dropped ones.
type updatePolicy struct {
	onUpdate encode.Updates
	log      *slog.Logger
	byTable  map[string]*droppedUpdates
}

// droppedUpdates counts the dropped updates of a table since the last log line.
type droppedUpdates struct {
	n      int
	logged time.Time
}

// droppedLogInterval is the minimum time between two log lines about the same table.
const droppedLogInterval = time.Minute

func newUpdatePolicy(policy encode.Updates, log *slog.Logger) updatePolicy {
	if policy == "" {
		policy = encode.UpdateStop
	}
	return updatePolicy{onUpdate: policy, log: log, byTable: make(map[string]*droppedUpdates)}
}

func (u *updatePolicy) dropUpdate(ctx context.Context, rel *decoder.Relation) {
	level := slog.LevelWarn
	switch u.onUpdate {
	case encode.UpdateError:
		level = slog.LevelError
	case encode.UpdateIgnore, encode.UpdateStop:
		return
	case encode.UpdateWarn:
	}
	table := rel.Namespace + "." + rel.Name
	d := u.byTable[table]
	if d == nil {
		d = &droppedUpdates{}
		u.byTable[table] = d
	}
	d.n++
	now := time.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < droppedLogInterval {
		return
	}
	u.log.Log(ctx, level, "updates dropped",
		slog.String("table", table), slog.Int("number", d.n))
	*d = droppedUpdates{logged: now}
}

// unexpectedChange returns the error for an UPDATE that the configuration does not allow, or for a kind of
// change that the publication did not publish when the session started.
func (p *pump) unexpectedChange(kind string, relations ...*decoder.Relation) error {
	e := &changeError{kind: kind, commitLSN: p.tx.CommitLSN}
	if len(relations) > 0 {
		e.table = relations[0].Namespace + "." + relations[0].Name
	}
	return e
}

// A changeError says that an outbox row was changed by something other than an INSERT.
type changeError struct {
	kind      string // UPDATE, DELETE, TRUNCATE
	table     string
	commitLSN pglogrepl.LSN
}

// Error names the change, its table and its transaction.
func (e *changeError) Error() string {
	return fmt.Sprintf("transaction %s: %s of %s is published, but only INSERTs are events", e.commitLSN, e.kind, e.table)
}
