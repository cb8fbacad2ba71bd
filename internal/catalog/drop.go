package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Drop drops the slot and the publication. It is idempotent. It returns an error and drops nothing
// while the slot is active, or if the role may not drop one of them. Rows that the slot has not delivered are lost for the
// stream; the Step has the confirmed position. The publication is kept if another slot may use it.
func Drop(ctx context.Context, cfg SetupConfig) ([]Step, error) {
	s, err := newSetup(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	state, err := inspect(ctx, s.conn, cfg.Publication, cfg.Slot, nil)
	if err != nil {
		return nil, err
	}
	if err := s.exec(ctx, "begin", "BEGIN"); err != nil { // a slot that is dropped does not come back: it is the last step
		return nil, err
	}
	publication := Step{Object: fmt.Sprintf("publication %q", cfg.Publication), Action: actionMissing}
	if state.Publication != nil {
		others, err := s.otherUsers(ctx, "true")
		switch {
		case err != nil:
			return nil, err
		case len(others) > 0:
			publication.Action = actionKept
			publication.Warning = fmt.Sprintf("slot %q of this database may use it; without it, rows are lost for that slot. To drop it too: DROP PUBLICATION %s",
				others[0], replication.QuoteIdent(cfg.Publication))
		default:
			if err := s.dropPublication(ctx); err != nil {
				return nil, err
			}
			publication.Action = actionDropped
		}
	}
	slot := Step{Object: fmt.Sprintf("slot %q", cfg.Slot), Action: actionMissing}
	if state.Slot != nil {
		if err := s.dropSlot(ctx, state); err != nil {
			return nil, err
		}
		slot.Action, slot.LSN, slot.Warning = actionDropped, state.Slot.ConfirmedFlushLSN, goneWithSlot
	}
	return []Step{slot, publication}, s.exec(ctx, fmt.Sprintf("drop publication %q", cfg.Publication), "COMMIT")
}

const goneWithSlot = "it has delivered nothing that was committed after this position. Unless another slot does, see docs/operations.md#re-create-the-slot"

// otherUsers returns the other slots of the database that may use the publication, active ones first. used is an SQL condition for s.active.
// The catalog does not say which publication a slot uses: only the command of a stream does.
func (s *setup) otherUsers(ctx context.Context, used string) ([]string, error) {
	return query(ctx, s.conn, pgx.RowTo[string], "look for other slots that use the publication", `
		SELECT s.slot_name::text
		FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
		WHERE s.database = pg_catalog.current_database() AND s.plugin = $1 AND NOT s.temporary AND s.slot_name <> $2 AND `+used+`
			AND (a.query IS NULL OR a.query NOT LIKE 'START_REPLICATION %' OR pg_catalog.strpos(a.query, $3) > 0)
		ORDER BY s.active DESC, 1`, plugin, s.cfg.Slot, s.cfg.Publication)
}

// dropSlot drops the slot if it is one of the relay's and not active.
func (s *setup) dropSlot(ctx context.Context, state *State) error {
	slot := state.Slot
	switch {
	case slot.Plugin != plugin || slot.Database != state.Database:
		return fmt.Errorf("%w: slot %q was not dropped, because it is not a slot of plugin %s in database %q", replication.ErrConfig, slot.Name, plugin, state.Database)
	case slot.Active:
		return fmt.Errorf("%w: slot %q is used by WAL sender %d: stop its relay first", replication.ErrSlotInUse, slot.Name, slot.ActivePID)
	}
	_, err := query(ctx, s.conn, pgx.RowTo[string], fmt.Sprintf("drop slot %q", slot.Name),
		"SELECT pg_catalog.pg_drop_replication_slot($1)::text", slot.Name)
	return err
}
