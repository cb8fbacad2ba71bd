package soak

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A plan is a transaction that a writer is writing.
type plan struct {
	id        uuid.UUID
	begun     time.Time
	sequences []delivery.Sequence // its events if it commits
	ids       []uuid.UUID
	rows      int
}

// transaction writes one or two transactions, from BEGIN to the end, and adds them
// to the journal.
func (w *writer) transaction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch n := w.rng.IntN(100); {
	case n < 12:
		return w.rollback(ctx)
	case n < 15:
		return w.twoPhases(ctx, "ROLLBACK PREPARED", delivery.RolledBack, w.someAggregates())
	case n < 18:
		return w.twoPhases(ctx, "COMMIT PREPARED", delivery.Committed, w.someAggregates())
	case n < 18+w.Twins:
		return w.twins(ctx)
	default:
		return w.commit(ctx)
	}
}

func (w *writer) commit(ctx context.Context) error {
	p, err := w.write(ctx, w.someAggregates())
	if err != nil {
		return err
	}
	return w.finish(ctx, p, "COMMIT", delivery.Committed)
}

func (w *writer) rollback(ctx context.Context) error {
	p, err := w.write(ctx, w.someAggregates())
	if err != nil {
		return err
	}
	w.Journal.Resolve(p.id, delivery.RolledBack)
	_, err = w.conn.Exec(ctx, "ROLLBACK")
	return err
}

// twins prepares two transactions and commits one directly after the other. The
// end LSN of the first is then nearly always the commit LSN of the second.
func (w *writer) twins(ctx context.Context) error {
	names := append(w.someAggregates(), w.someAggregates()...)
	slices.Sort(names) // all writers lock in this order, so the second group causes no deadlock
	names = slices.Compact(names)
	if len(names) < 2 {
		return w.commit(ctx)
	}
	return w.twoPhases(ctx, "COMMIT PREPARED", delivery.Committed, names[:len(names)/2], names[len(names)/2:])
}

// twoPhases prepares a transaction for each group of aggregates and then ends them
// with end. After an error, connect rolls back those that are still prepared.
func (w *writer) twoPhases(ctx context.Context, end string, f delivery.Fate, groups ...[]string) error {
	var prepared []*plan
	for _, aggregates := range groups {
		p, err := w.write(ctx, aggregates)
		if err != nil {
			return err
		}
		w.open = append(w.open, p.id)
		if _, err := w.conn.Exec(ctx, "PREPARE TRANSACTION '"+p.id.String()+"'"); err != nil {
			return err
		}
		prepared = append(prepared, p)
	}
	for _, p := range prepared {
		if err := w.finish(ctx, p, end+" '"+p.id.String()+"'", f); err != nil {
			return err
		}
	}
	w.open = nil
	return nil
}

// finish ends p with sql. After an error the outcome of p is unknown until Settle.
func (w *writer) finish(ctx context.Context, p *plan, sql string, f delivery.Fate) error {
	if _, err := w.conn.Exec(ctx, sql); err != nil {
		return err
	}
	w.Journal.Resolve(p.id, f)
	return nil
}

// write executes a transaction except for its end. If it returns an error, the
// transaction is not in the journal and never commits. None of its rows may then
// be in a topic.
func (w *writer) write(ctx context.Context, aggregates []string) (*plan, error) {
	p := &plan{id: w.uuid(), begun: time.Now()}
	if _, err := w.conn.Exec(ctx, "BEGIN"); err != nil {
		return nil, err
	}
	if _, err := w.conn.Exec(ctx, "INSERT INTO oracle.done VALUES ($1)", p.id); err != nil {
		return nil, err
	}
	if err := w.fill(ctx, p, aggregates); err != nil {
		return nil, err
	}
	w.Journal.Begin(p.id, p.begun, p.sequences)
	return p, nil
}

// fill writes the rows of p.
func (w *writer) fill(ctx context.Context, p *plan, aggregates []string) error {
	var drafts []draft
	for _, aggregate := range aggregates {
		d, err := w.reserve(ctx, aggregate, w.rowCount())
		if err != nil {
			return err
		}
		if d.rolledBack {
			continue
		}
		drafts = append(drafts, d)
		p.sequences = append(p.sequences, d.Sequence)
		p.rows += d.Rows
	}
	for i, index := 0, 0; i < len(drafts); i++ {
		ids, err := w.insert(ctx, p.id, drafts[i].Sequence, index, p.rows)
		if err != nil {
			return err
		}
		p.ids = append(p.ids, ids...)
		index += drafts[i].Rows
	}
	if !w.Keep && w.rng.IntN(3) == 0 { // the rows leave the table, but not the WAL
		if _, err := w.conn.Exec(ctx, `DELETE FROM outbox WHERE id = ANY($1)`, p.ids); err != nil {
			return err
		}
	}
	return nil
}

// A draft is a sequence whose numbers have been drawn.
type draft struct {
	delivery.Sequence
	rolledBack bool
}

// reserve locks an aggregate and draws numbers. Sometimes it writes rows after a
// savepoint and rolls back to the savepoint. Later rows then get the same numbers.
func (w *writer) reserve(ctx context.Context, aggregate string, rows int) (draft, error) {
	kind := w.rng.IntN(10)
	if kind < 2 {
		if _, err := w.conn.Exec(ctx, "SAVEPOINT s"); err != nil {
			return draft{}, err
		}
	}
	var last int64
	err := w.conn.QueryRow(ctx, `UPDATE oracle.agg SET seq = seq + $2 WHERE aggregate = $1 RETURNING seq`, aggregate, rows).Scan(&last)
	if err != nil {
		return draft{}, err
	}
	d := draft{Sequence: delivery.Sequence{Aggregate: aggregate, First: last - int64(rows) + 1, Rows: rows}}
	switch kind {
	case 0:
		_, err = w.conn.Exec(ctx, "RELEASE s")
	case 1:
		d.rolledBack = true
		err = w.phantom(ctx, d.Sequence)
	}
	return d, err
}

// phantom writes rows and rolls back to the savepoint. In the journal they belong
// to a separate transaction, so that the Checker recognizes them.
func (w *writer) phantom(ctx context.Context, s delivery.Sequence) error {
	id := w.uuid()
	w.Journal.Begin(id, time.Now(), []delivery.Sequence{s})
	w.Journal.Resolve(id, delivery.RolledBack)
	if _, err := w.insert(ctx, id, s, 0, s.Rows); err != nil {
		return err
	}
	_, err := w.conn.Exec(ctx, "ROLLBACK TO s")
	return err
}

// insert writes the rows of a sequence, in order, and returns their ids.
func (w *writer) insert(ctx context.Context, tx uuid.UUID, s delivery.Sequence, index, count int) ([]uuid.UUID, error) {
	ids, payloads, headers := make([]uuid.UUID, s.Rows), make([]string, s.Rows), make([]string, s.Rows)
	for i := range s.Rows {
		e := Event{Run: w.Run, Aggregate: s.Aggregate, Seq: s.First + int64(i), Tx: tx, Index: index + i, Count: count}
		size := w.payloadSize()
		if s.Rows > 1000 {
			size = 0
		}
		if w.Poison != nil {
			size = cmp.Or(w.Poison(e, w.rng), size)
		}
		ids[i], payloads[i], headers[i] = e.ID(), string(e.Payload(size)), e.HeadersColumn()
	}
	route := "order"
	if w.Route != nil {
		route = w.Route(s.Aggregate)
	}
	_, err := w.conn.Exec(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT e.id, $6, $1, $2, e.payload::jsonb, e.headers::jsonb
		FROM unnest($3::uuid[], $4::text[], $5::text[]) WITH ORDINALITY AS e (id, payload, headers, i) ORDER BY e.i`,
		s.Aggregate, EventType, ids, payloads, headers, route)
	return ids, err
}

// someAggregates returns one to three aggregates, in the order in which all
// writers lock them.
func (w *writer) someAggregates() []string {
	names := make([]string, 1+w.rng.IntN(3))
	for i := range names {
		names[i] = aggregateName(w.rng.IntN(w.Aggregates))
	}
	slices.Sort(names)
	return names
}

// rowCount returns the number of rows of a sequence: usually 1 to 5, rarely thousands.
func (w *writer) rowCount() int {
	if w.rng.IntN(2000) == 0 {
		return min(1000+w.rng.IntN(4000), cmp.Or(w.MaxSequence, 5000))
	}
	return 1 + w.rng.IntN(5)
}

// payloadSize returns the number of bytes of a payload: from 10 to MaxPayload,
// mostly few, and rarely a multiple of MaxPayload.
func (w *writer) payloadSize() int {
	if w.rng.IntN(5000) == 0 {
		return w.MaxPayload * (8 + w.rng.IntN(24))
	}
	u := w.rng.Float64()
	return int(10 * math.Pow(float64(w.MaxPayload)/10, u*u*u))
}

func (w *writer) uuid() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(w.rng.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // random (RFC 9562)
	return id
}
