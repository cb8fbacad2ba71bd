package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A WaitingEvent is an event in inbox_events: a consumer has received it and not processed it yet.
type WaitingEvent struct {
	Event // Attempt is the number of the next attempt

	Consumer   string
	ReceivedAt time.Time
	LastError  string    // of the last attempt; empty before the first
	DueAt      time.Time // time of the next attempt; zero if the event is parked or waits behind another event of its key
	ParkedAt   time.Time // zero unless the event is parked
	// LeasedUntil is when the lease expires of the processor that is handling the event. Zero means
	// that no processor is handling it.
	LeasedUntil time.Time
}

// List returns up to limit events that wait or are parked, in the order in which they arrived. An
// empty consumer means all consumers.
func (s Store) List(ctx context.Context, db DB, consumer string, limit int) ([]WaitingEvent, error) {
	return s.list(ctx, db, consumer, limit, false)
}

// ListParked is List for parked events only.
func (s Store) ListParked(ctx context.Context, db DB, consumer string, limit int) ([]WaitingEvent, error) {
	return s.list(ctx, db, consumer, limit, true)
}

func (s Store) list(ctx context.Context, db DB, consumer string, limit int, parkedOnly bool) ([]WaitingEvent, error) {
	var events []WaitingEvent
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+eventColumns+`, attempts, consumer, received_at, coalesce(last_error, ''), due_at, parked_at, leased_until
			FROM `+s.table(eventsTable)+` WHERE $1::text IN ('', consumer) AND (parked_at IS NOT NULL OR NOT $3::boolean)
			ORDER BY position LIMIT $2::bigint`, consumer, limit, parkedOnly)
		if err != nil {
			return err
		}
		events, err = pgx.CollectRows(rows, scanWaiting)
		return err
	})
	return events, explain("list events", err)
}

func scanWaiting(row pgx.CollectableRow) (WaitingEvent, error) {
	var w WaitingEvent
	var due, parked, leased *time.Time
	err := scanEvent(row, &w.Event, &w.Attempt, &w.Consumer, &w.ReceivedAt, &w.LastError, &due, &parked, &leased)
	w.Attempt++
	for to, from := range map[*time.Time]*time.Time{&w.DueAt: due, &w.ParkedAt: parked, &w.LeasedUntil: leased} {
		if from != nil {
			*to = *from
		}
	}
	return w, err
}

// Retry makes parked events due, with their attempts counted from 1 again. A running [Processor] of
// the consumer handles them within [Config].PollInterval, and then the events that wait behind them.
//
// Retry changes all of ids or none: if one of them is not parked, the error wraps [ErrNotFound].
// Without ids it does nothing; see [Store.RetryAll].
func (s Store) Retry(ctx context.Context, db DB, consumer string, ids ...uuid.UUID) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.retry()+` AND event_id = ANY ($2::uuid[]) RETURNING event_id`, consumer, pgUUIDs(ids))
		if err != nil {
			return err
		}
		changed, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
		if err != nil {
			return err
		}
		return s.requireAll(ctx, tx, consumer, ids, changed)
	})
	return explain("retry events", err)
}

// RetryAll makes all parked events of a consumer due, as Retry does, and returns their number. If
// the tables know no consumer of that name, the error wraps [ErrNotFound].
func (s Store) RetryAll(ctx context.Context, db DB, consumer string) (int, error) {
	if err := checkConsumer(consumer); err != nil {
		return 0, err
	}
	n := 0
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.retry(), consumer)
		if n = int(tag.RowsAffected()); err != nil || n > 0 {
			return err
		}
		known, err := s.readState(ctx, tx, consumer, uuid.Nil)
		if err == nil && !known.consumer {
			err = known.unknownConsumer(consumer)
		}
		return err
	})
	return n, explain("retry events", err)
}

func (s Store) retry() string {
	return `UPDATE ` + s.table(eventsTable) + ` SET parked_at = NULL, due_at = clock_timestamp(), attempts = 0
		WHERE consumer = $1::text AND parked_at IS NOT NULL`
}

// Discard removes events that wait or are parked, and claims them, so that they are never processed.
// The next event of each key follows. You cannot undo it.
//
// Discard removes all of ids or none: if one of them neither waits nor is parked, the error wraps
// [ErrNotFound]. Without ids it does nothing.
func (s Store) Discard(ctx context.Context, db DB, consumer string, ids ...uuid.UUID) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) // against deadlocks
	ids = slices.Compact(ids)
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		var removed []pgtype.UUID
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) (err error) {
			removed, err = s.discardAll(ctx, savepoint, consumer, ids)
			if err == nil && len(removed) < len(ids) {
				err = ErrNotFound // and roll back the claims
			}
			return err
		})
		if errors.Is(err, ErrNotFound) {
			return s.requireAll(ctx, tx, consumer, ids, removed)
		}
		return err
	})
	return explain("discard events", err)
}

// discardAll claims ids, and returns those that it removed.
func (s Store) discardAll(ctx context.Context, tx pgx.Tx, consumer string, ids []uuid.UUID) (removed []pgtype.UUID, err error) {
	// The claims come first, as in an attempt: they wait for one that is in progress.
	for _, id := range ids {
		if _, err := s.Claim(ctx, tx, consumer, id); err != nil {
			return nil, err
		}
	}
	sql := newStatements(s)
	for _, id := range ids {
		found, err := s.discard(ctx, tx, &sql, consumer, id)
		if err != nil {
			return nil, err
		}
		if found {
			removed = append(removed, pgUUID(id))
		}
	}
	return removed, nil
}

// discard removes an event from its lane, and reports whether it was there.
func (s Store) discard(ctx context.Context, tx pgx.Tx, sql *statements, consumer string, id uuid.UUID) (bool, error) {
	var lane pgtype.UUID
	events := s.table(eventsTable)
	err := tx.QueryRow(ctx, `SELECT lane FROM `+events+` WHERE consumer = $1::text AND event_id = $2::uuid`, consumer, pgUUID(id)).Scan(&lane)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, lockLane, laneLock(lane.Bytes)); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, `DELETE FROM `+events+` WHERE consumer = $1::text AND event_id = $2::uuid`, consumer, pgUUID(id))
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, sql.promote, consumer, lane)
	return tag.RowsAffected() == 1, err
}

// requireAll returns an error that explains the first of ids that is not in done.
func (s Store) requireAll(ctx context.Context, tx pgx.Tx, consumer string, ids []uuid.UUID, done []pgtype.UUID) error {
	for _, id := range ids {
		if slices.Contains(done, pgUUID(id)) {
			continue
		}
		known, err := s.readState(ctx, tx, consumer, id)
		switch {
		case err != nil:
			return err
		case !known.consumer:
			return known.unknownConsumer(consumer)
		case known.waits:
			return fmt.Errorf("%w: event %s of consumer %q is not parked; it waits for its next attempt", ErrNotFound, id, consumer)
		case known.processed:
			return fmt.Errorf("%w: consumer %q has no event %s left: it was processed or discarded", ErrNotFound, consumer, id)
		}
		return fmt.Errorf("%w: consumer %q has no event %s", ErrNotFound, consumer, id)
	}
	return nil
}

// known is what the tables have of a consumer and an event.
type known struct {
	consumer, waits, processed bool
	waiting                    []string // all consumers with events in inbox_events
}

func (s Store) readState(ctx context.Context, tx pgx.Tx, consumer string, id uuid.UUID) (known, error) {
	var k known
	claims, events := s.table(claimsTable), s.table(eventsTable)
	err := tx.QueryRow(ctx, `SELECT
		EXISTS (SELECT FROM `+claims+` WHERE consumer = $1::text) OR EXISTS (SELECT FROM `+events+` WHERE consumer = $1::text),
		EXISTS (SELECT FROM `+events+` WHERE consumer = $1::text AND event_id = $2::uuid),
		EXISTS (SELECT FROM `+claims+` WHERE consumer = $1::text AND event_id = $2::uuid),
		ARRAY (SELECT DISTINCT consumer FROM `+events+` ORDER BY 1)`,
		consumer, pgUUID(id)).Scan(&k.consumer, &k.waits, &k.processed, &k.waiting)
	return k, err
}

func (k known) unknownConsumer(consumer string) error {
	if len(k.waiting) == 0 {
		return fmt.Errorf("%w: there are no events of a consumer %q", ErrNotFound, consumer)
	}
	return fmt.Errorf("%w: there are no events of a consumer %q; consumers with waiting events: %s",
		ErrNotFound, consumer, strings.Join(k.waiting, ", "))
}

// inTx runs f in a transaction.
func inTx(ctx context.Context, db DB, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
}

func pgUUIDs(ids []uuid.UUID) []pgtype.UUID {
	all := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		all[i] = pgUUID(id)
	}
	return all
}
