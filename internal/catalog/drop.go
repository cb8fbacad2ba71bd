package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Drop drops the slot, then the publication. It is idempotent. It returns an error and drops nothing
// while the slot is active. Rows that the slot has not delivered are lost for the stream; the Step has
// the confirmed position.
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
	slot := Step{Object: fmt.Sprintf("slot %q", cfg.Slot), Action: actionMissing}
	if state.Slot != nil {
		if err := s.dropSlot(ctx, state); err != nil {
			return nil, err
		}
		slot.Action, slot.LSN = actionDropped, state.Slot.ConfirmedFlushLSN
	}
	publication := Step{Object: fmt.Sprintf("publication %q", cfg.Publication), Action: actionMissing}
	if state.Publication != nil {
		if err := s.dropPublication(ctx); err != nil {
			return []Step{slot}, err
		}
		publication.Action = actionDropped
	}
	return []Step{slot, publication}, nil
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
