package prune

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// pollInterval is the time between two queries of the slots' confirmed positions.
const pollInterval = 50 * time.Millisecond

// A slot is a row of pg_replication_slots.
type slot struct {
	Name      string
	Usable    bool // uses pgoutput, and belongs to this database
	Lost      bool
	PID       int32
	Confirmed bool // the mark
}

// streams returns the WAL sender of each slot.
func (p *pruner) streams(ctx context.Context) (map[string]int32, error) {
	const nowhere = "FFFFFFFF/FFFFFFFF"
	slots, err := p.slots(ctx, nowhere)
	if err != nil {
		return nil, err
	}
	pids := make(map[string]int32)
	for _, s := range slots {
		if s.PID == 0 {
			return nil, &NotConfirmedError{s.Name, "no relay streams from it"}
		}
		pids[s.Name] = s.PID
	}
	return pids, nil
}

// slots returns the slots, and whether they have confirmed position mark.
func (p *pruner) slots(ctx context.Context, mark string) ([]slot, error) {
	rows, _ := p.work.Query(ctx, `
		SELECT slot_name, COALESCE(plugin = 'pgoutput' AND database = pg_catalog.current_database(), false),
			COALESCE(wal_status = 'lost', false), COALESCE(active_pid, 0), COALESCE(confirmed_flush_lsn >= $2::text::pg_lsn, false)
		FROM pg_catalog.pg_replication_slots WHERE slot_name = ANY ($1)`, p.cfg.Slots, mark)
	slots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
	if err != nil {
		return nil, fmt.Errorf("read the slots: %w", err)
	}
	found := make(map[string]bool)
	for _, s := range slots {
		if !s.Usable {
			return nil, fmt.Errorf("%w: slot %q does not use pgoutput or belongs to another database", ErrConfig, s.Name)
		}
		if s.Lost {
			return nil, fmt.Errorf("%w: slot %q", replication.ErrSlotLost, s.Name)
		}
		found[s.Name] = true
	}
	for _, name := range p.cfg.Slots {
		switch {
		case found[name]:
		case name != p.cfg.Slots[0]:
			return nil, fmt.Errorf("%w: there is no slot %q, which must have confirmed the rows too", ErrConfig, name)
		default:
			return nil, fmt.Errorf("%w: slot %q", replication.ErrSlotMissing, name)
		}
	}
	return slots, nil
}

// confirm waits, at most for wait, until all rows of the table that the snapshot sees are delivered. It also verifies
// that they are published: a slot confirms positions after unpublished rows too.
func (p *pruner) confirm(ctx context.Context, r *relation, t *Table, wait time.Duration) error {
	if err := p.verifyPublished(ctx, r, wait); err != nil {
		return err
	}
	mark, err := p.confirmMark(ctx, wait)
	if err != nil {
		return err
	}
	if err := p.verifyPublished(ctx, r, wait); err != nil {
		return err
	}
	t.Confirmed = mark
	return nil
}

// confirmMark writes a mark and waits until all slots have confirmed it. It returns the position of
// the mark.
func (p *pruner) confirmMark(ctx context.Context, wait time.Duration) (mark string, err error) {
	before, err := p.streams(ctx)
	if err != nil {
		return "", err
	}
	if mark, err = p.mark(ctx); err != nil {
		return "", replication.QueryError(ctx, "write a mark to the WAL", err)
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		behind, err := p.behind(ctx, mark, before)
		if err != nil || behind == "" {
			return mark, err
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-deadline.C:
			return "", &NotConfirmedError{behind, fmt.Sprintf("it has not confirmed %s within %s", mark, wait)}
		case <-poll.C:
		}
	}
}

// behind returns a slot that has not confirmed the mark; empty if all have. The WAL senders must be the same as before.
func (p *pruner) behind(ctx context.Context, mark string, before map[string]int32) (string, error) {
	slots, err := p.slots(ctx, mark)
	if err != nil {
		return "", err
	}
	behind := ""
	for _, s := range slots {
		if s.PID != before[s.Name] {
			return "", &NotConfirmedError{s.Name, "its relay stopped or reconnected meanwhile"}
		}
		if !s.Confirmed {
			behind = s.Name
		}
	}
	return behind, nil
}

// mark writes a mark to the WAL and returns its position. Every relay of the database receives and
// ignores it, because the prefix is reserved and an empty content is not a snapshot. The commit flushes
// it: Postgres sends only flushed WAL.
func (p *pruner) mark(ctx context.Context) (position string, err error) {
	err = pgx.BeginFunc(ctx, p.work, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = local`); err != nil {
			return err
		}
		position, err = queryOne[string](ctx, tx, `SELECT pg_catalog.pg_logical_emit_message(true, $1, '')::text`, catalog.MessagePrefix)
		return err
	})
	return position, err
}
