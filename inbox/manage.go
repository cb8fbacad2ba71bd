package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A WaitingEvent is an event that a consumer has received and not processed.
type WaitingEvent struct {
	Event // Attempt is the one that comes next

	Consumer   string
	ReceivedAt time.Time
	LastError  string    // of the last attempt; empty if there was none
	DueAt      time.Time // when it is tried next; zero if it is parked or waits behind another one
	ParkedAt   time.Time // zero: it is not parked
	// LeasedUntil is when the lease of the processor that is trying it ends; zero if none does.
	LeasedUntil time.Time
}

// List returns the events of a consumer that wait or are parked, at most limit of them, in the order
// of arrival. An empty consumer means all of them.
func (s Schema) List(ctx context.Context, tx pgx.Tx, consumer string, limit int) ([]WaitingEvent, error) {
	return s.list(ctx, tx, consumer, limit, false)
}

// ListParked is List of those that are parked: they wait for a person.
func (s Schema) ListParked(ctx context.Context, tx pgx.Tx, consumer string, limit int) ([]WaitingEvent, error) {
	return s.list(ctx, tx, consumer, limit, true)
}

func (s Schema) list(ctx context.Context, tx pgx.Tx, consumer string, limit int, parkedOnly bool) ([]WaitingEvent, error) {
	rows, err := tx.Query(ctx, `SELECT `+eventColumns+`, attempts, consumer, received_at, coalesce(last_error, ''), due_at, parked_at, leased_until
		FROM `+s.table(eventsTable)+` WHERE $1::text IN ('', consumer) AND (parked_at IS NOT NULL OR NOT $3::boolean)
		ORDER BY position LIMIT $2::bigint`, consumer, limit, parkedOnly)
	if err != nil {
		return nil, explain("list events", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (WaitingEvent, error) {
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
	})
	return events, explain("list events", err)
}

// List returns what waits, in the tables of the search_path; see [Schema.List].
func List(ctx context.Context, tx pgx.Tx, consumer string, limit int) ([]WaitingEvent, error) {
	return Schema("").List(ctx, tx, consumer, limit)
}

// ListParked returns what is parked, in the tables of the search_path; see [Schema.ListParked].
func ListParked(ctx context.Context, tx pgx.Tx, consumer string, limit int) ([]WaitingEvent, error) {
	return Schema("").ListParked(ctx, tx, consumer, limit)
}

// Retry has parked events of a consumer tried again, from the first attempt on, and returns how
// many there were: those with the given ids, or without ids all of them. A processor that is
// running sees them at its next look, see Config.Poll. An id that is not parked is left alone.
func (s Schema) Retry(ctx context.Context, tx pgx.Tx, consumer string, ids ...uuid.UUID) (int, error) {
	if err := checkConsumer(consumer); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, `UPDATE `+s.table(eventsTable)+` SET parked_at = NULL, due_at = clock_timestamp(), attempts = 0
		WHERE consumer = $1::text AND parked_at IS NOT NULL AND ($2::uuid[] IS NULL OR event_id = ANY ($2::uuid[]))`,
		consumer, pgUUIDs(ids))
	return int(tag.RowsAffected()), explain("retry events", err)
}

// Retry has parked events tried again, in the tables of the search_path; see [Schema.Retry].
func Retry(ctx context.Context, tx pgx.Tx, consumer string, ids ...uuid.UUID) (int, error) {
	return Schema("").Retry(ctx, tx, consumer, ids...)
}

// Discard gives up events of a consumer for good: each is noted as processed, without any effect,
// and the next one of its key follows. It returns how many of ids were waiting or parked; the others
// are left alone. There is no undoing it.
func (s Schema) Discard(ctx context.Context, tx pgx.Tx, consumer string, ids ...uuid.UUID) (int, error) {
	if err := checkConsumer(consumer); err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, errors.New("inbox: discard which events?")
	}
	// The claims come first, as in an attempt: they wait for one that is under way.
	for _, id := range ids {
		if _, err := s.Claim(ctx, tx, consumer, id); err != nil {
			return 0, err
		}
	}
	sql := newStatements(s)
	n := 0
	for _, id := range ids {
		removed, err := s.discard(ctx, tx, &sql, consumer, id)
		if err != nil {
			return n, explain(fmt.Sprintf("discard event %s", id), err)
		}
		n += removed
	}
	return n, nil
}

// Discard gives up events, in the tables of the search_path; see [Schema.Discard].
func Discard(ctx context.Context, tx pgx.Tx, consumer string, ids ...uuid.UUID) (int, error) {
	return Schema("").Discard(ctx, tx, consumer, ids...)
}

// discard takes an event out of its lane and returns how many that were: it or none.
func (s Schema) discard(ctx context.Context, tx pgx.Tx, sql *statements, consumer string, id uuid.UUID) (int, error) {
	var lane pgtype.UUID
	events := s.table(eventsTable)
	err := tx.QueryRow(ctx, `SELECT lane FROM `+events+` WHERE consumer = $1::text AND event_id = $2::uuid`, consumer, pgUUID(id)).Scan(&lane)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, lockLane, laneLock(lane.Bytes)); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, `DELETE FROM `+events+` WHERE consumer = $1::text AND event_id = $2::uuid`, consumer, pgUUID(id))
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, sql.promote, consumer, lane)
	return int(tag.RowsAffected()), err
}

// pgUUIDs returns ids as an array, NULL without any.
func pgUUIDs(ids []uuid.UUID) []pgtype.UUID {
	var all []pgtype.UUID
	for _, id := range ids {
		all = append(all, pgUUID(id))
	}
	return all
}
