package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is a connection, a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// slotTimeout is how long a slot may wait for open transactions to end.
const slotTimeout = 30 * time.Second

// createSlot makes a logical slot for pgoutput.
func createSlot(ctx context.Context, q querier, name string, temporary bool) (at string, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	err = q.QueryRow(ctx, `SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput', $2)`, name, temporary).Scan(&at)
	if err != nil {
		return "", postgresError("make a slot", err)
	}
	return at, nil
}

// copySlot makes a slot that begins where b's does.
func (w *Workbench) copySlot(ctx context.Context, b *Backlog) (string, error) {
	return w.withSlot(func(name string) error {
		// In the session that has the temporary one.
		_, err := b.owner.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2, false)`, b.slot, name)
		if err != nil {
			return postgresError("copy the slot", err)
		}
		return nil
	})
}

// withSlot makes a slot and sees to it that Close drops it, if nobody does before.
func (w *Workbench) withSlot(create func(name string) error) (string, error) {
	name := w.newSlotName()
	w.undo = append(w.undo, removal{
		leftover: Leftover{"slot " + name, `SELECT pg_drop_replication_slot('` + name + `')`},
		holdsLog: true,
		drop:     func(ctx context.Context) error { return w.dropSlot(ctx, name) },
	})
	return name, create(name)
}

// dropSlot drops a slot, also when ctx is done, once its reader has gone. A slot that is not there
// is no error.
func (w *Workbench) dropSlot(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slotFreeTimeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := w.pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, name)
		if !inUse(err) {
			return err
		}
		select {
		case <-ticker.C: // the walsender has not noticed yet
		case <-ctx.Done():
			return err
		}
	}
}

// newSlotName returns a name that no slot has.
func (w *Workbench) newSlotName() string {
	w.slots++
	return fmt.Sprintf("%s_%d", w.name, w.slots)
}

// inUse reports whether err is the refusal to drop a slot that is read from (SQLSTATE 55006,
// object_in_use).
func inUse(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == "55006"
}
