package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// statements are the SQL of one schema. Their text never changes, because pgx caches prepared
// statements by text.
type statements struct {
	claimDirect, claimLeased string
	store                    string
	leaseDue                 string
	renew                    string
	remove, promote          string
	recordFailure            string
	release                  string
	backlog                  string
}

const (
	setIdleTimeout = `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true)`
	lockLane       = `SELECT pg_advisory_xact_lock($1::bigint)`
)

// eventColumns are the columns of an Event.
const eventColumns = `event_id, type, topic, partition, log_offset, key, payload, header_names, header_values, produced_at`

func newStatements(s Store) statements {
	claims, events := s.table(claimsTable), s.table(eventsTable)
	return statements{
		// One statement, and so one snapshot: the package comment explains why that is enough.
		claimDirect: `INSERT INTO ` + claims + ` (consumer, event_id)
			SELECT $1::text, $2::uuid WHERE NOT EXISTS (SELECT FROM ` + events + ` WHERE consumer = $1::text AND lane = $3::uuid)
			ON CONFLICT DO NOTHING`,
		claimLeased: `INSERT INTO ` + claims + ` (consumer, event_id)
			SELECT $1::text, $2::uuid FROM ` + events + ` WHERE consumer = $1::text AND event_id = $2::uuid AND leased_by = $3::uuid
			ON CONFLICT DO NOTHING`,
		store: `WITH found AS (
				SELECT EXISTS (SELECT FROM ` + claims + ` WHERE consumer = $1::text AND event_id = $2::uuid) AS claimed,
				       EXISTS (SELECT FROM ` + events + ` WHERE consumer = $1::text AND event_id = $2::uuid) AS stored,
				       EXISTS (SELECT FROM ` + events + ` WHERE consumer = $1::text AND lane = $12::uuid) AS busy
			), added AS (
				INSERT INTO ` + events + ` (consumer, ` + eventColumns + `, lane, attempts, last_error, due_at, parked_at)
				SELECT $1::text, $2::uuid, $3::text, $4::text, $5::integer, $6::bigint, $7::bytea, $8::bytea, $9::text[],
				       $10::bytea[], $11::timestamptz, $12::uuid, $13::integer, nullif($14::text, ''),
				       CASE WHEN NOT busy AND NOT $16::boolean THEN clock_timestamp() + $15::bigint * interval '1 microsecond' END,
				       CASE WHEN NOT busy AND $16::boolean THEN clock_timestamp() END
				FROM found WHERE NOT claimed AND NOT stored AND (busy OR NOT $17::boolean)
				ON CONFLICT DO NOTHING
			)
			SELECT claimed, stored, busy FROM found`,
		// Materialized, so that the limit applies whatever the plan is. And now(), which can use the
		// index, because the transaction does nothing else.
		leaseDue: `WITH due AS MATERIALIZED (
				SELECT event_id FROM ` + events + `
				WHERE consumer = $1::text AND due_at <= now() AND (leased_until IS NULL OR leased_until < now())
				ORDER BY due_at LIMIT $4::integer FOR UPDATE SKIP LOCKED)
			UPDATE ` + events + ` SET leased_by = $2::uuid, leased_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
			WHERE consumer = $1::text AND event_id IN (SELECT event_id FROM due)
			RETURNING ` + eventColumns + `, attempts`,
		renew: `UPDATE ` + events + ` SET leased_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
			WHERE consumer = $1::text AND due_at <= now() AND leased_by = $2::uuid RETURNING event_id`,
		remove: `DELETE FROM ` + events + ` WHERE consumer = $1::text AND event_id = $2::uuid AND leased_by = $3::uuid`,
		promote: `UPDATE ` + events + ` SET due_at = clock_timestamp()
			WHERE consumer = $1::text AND due_at IS NULL AND parked_at IS NULL AND event_id = (
				SELECT event_id FROM ` + events + ` WHERE consumer = $1::text AND lane = $2::uuid ORDER BY position LIMIT 1)`,
		recordFailure: `UPDATE ` + events + ` SET attempts = attempts + 1, last_error = $4::text, leased_by = NULL, leased_until = NULL,
				due_at = CASE WHEN NOT $6::boolean THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END,
				parked_at = CASE WHEN $6::boolean THEN clock_timestamp() END
			WHERE consumer = $1::text AND event_id = $2::uuid AND leased_by = $3::uuid`,
		release: `UPDATE ` + events + ` SET leased_by = NULL, leased_until = NULL
			WHERE consumer = $1::text AND due_at <= now() AND leased_by = $2::uuid`,
		backlog: `SELECT type, count(*) FILTER (WHERE parked_at IS NULL), count(*) FILTER (WHERE parked_at IS NOT NULL),
				extract(epoch FROM clock_timestamp() - min(received_at) FILTER (WHERE parked_at IS NULL))::float8,
				extract(epoch FROM clock_timestamp() - min(received_at) FILTER (WHERE parked_at IS NOT NULL))::float8
			FROM ` + events + ` WHERE consumer = $1::text GROUP BY type`,
	}
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// An entry has the state of an event that enters inbox_events.
type entry struct {
	attempts   int
	lastError  string
	delay      time.Duration
	park       bool
	behindOnly bool // only if there is another event in the lane
}

// A found is what store found before it changed anything: whether the event was claimed or stored, and
// whether its lane had other events.
type found struct{ claimed, stored, busy bool }

// store stores e in inbox_events, unless it is claimed or stored: behind the events of its lane, or
// first in it, due after a delay or parked. It holds the lane's lock until tx ends.
func (p *Processor) store(ctx context.Context, tx pgx.Tx, e *Event, how entry) (found, error) {
	names, values := make([]string, len(e.Headers)), make([][]byte, len(e.Headers))
	for i, h := range e.Headers {
		names[i], values[i] = text(h.Name), h.Value
	}
	lane := e.lane()
	var batch pgx.Batch
	batch.Queue(lockLane, laneLock(lane))
	batch.Queue(p.sql.store, p.cfg.Consumer, pgUUID(e.ID), text(e.Type), text(e.Topic), e.Partition, e.Offset, e.Key, e.Payload,
		names, values, e.Time, pgUUID(lane), how.attempts, how.lastError, how.delay.Microseconds(), how.park, how.behindOnly)
	results := tx.SendBatch(ctx, &batch)
	var f found
	_, err := results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(&f.claimed, &f.stored, &f.busy)
	}
	return f, explain("store an event", closeResults(results, err))
}

// leaseDue leases up to n events that are due.
func (p *Processor) leaseDue(ctx context.Context, n int) ([]Event, error) {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return nil, err
	}
	defer rollback(ctx, tx)
	rows, err := tx.Query(ctx, p.sql.leaseDue, p.cfg.Consumer, pgUUID(p.owner), p.cfg.LeaseDuration.Microseconds(), n)
	if err != nil {
		return nil, explain("lease due events", err)
	}
	events, err := pgx.CollectRows(rows, scanLeased)
	if err != nil {
		return nil, explain("lease due events", err)
	}
	return events, explain("lease due events", tx.Commit(ctx))
}

func scanLeased(row pgx.CollectableRow) (Event, error) {
	var e Event
	var attempts int
	err := scanEvent(row, &e, &attempts)
	e.Attempt = attempts + 1
	return e, err
}

// scanEvent scans eventColumns, and the columns after them into more.
func scanEvent(row pgx.CollectableRow, e *Event, more ...any) error {
	var id pgtype.UUID
	var names []string
	var values [][]byte
	err := row.Scan(append([]any{
		&id, &e.Type, &e.Topic, &e.Partition, &e.Offset, &e.Key, &e.Payload, &names, &values, &e.Time,
	}, more...)...)
	if err != nil {
		return err
	}
	if len(names) != len(values) {
		return fmt.Errorf("event %s has %d header names and %d header values", uuid.UUID(id.Bytes), len(names), len(values))
	}
	e.ID = id.Bytes
	for i := range names {
		e.Headers = append(e.Headers, Header{Name: names[i], Value: values[i]})
	}
	return nil
}
