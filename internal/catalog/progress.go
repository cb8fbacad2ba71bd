package catalog

import (
	"context"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A SlotProgress compares the confirmed position of a slot with the WAL of its server.
type SlotProgress struct {
	SystemID  string
	Timeline  int32
	WALEnd    pglogrepl.LSN // after the commit record of every transaction that was visible before the call
	Exists    bool          // the slot
	Active    bool          // a relay streams from it
	Confirmed pglogrepl.LSN // confirmed_flush_lsn; 0: the slot does not exist, or is being created
}

// ReadSlotProgress reads the progress of a slot over an ordinary connection of its own.
func ReadSlotProgress(ctx context.Context, conn *pgconn.Config, slot string) (SlotProgress, error) {
	var p SlotProgress
	c, err := replication.Connect(ctx, replication.Ordinary(conn))
	if err != nil {
		return p, err
	}
	defer func() { _ = c.Close(ctx) }()
	// An asynchronous commit is visible before its record is written: the insert position is after it.
	found, err := queryOne(ctx, c, func(row pgx.CollectableRow) (p SlotProgress, err error) {
		err = row.Scan(&p.SystemID, &p.Timeline, &p.WALEnd, &p.Exists, &p.Active, &p.Confirmed)
		return p, err
	}, "read the progress of the slot", `
		SELECT s.system_identifier::text, CASE WHEN pg_catalog.pg_is_in_recovery() THEN c.timeline_id
				ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END,
			CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END,
			slot.slot_name IS NOT NULL, COALESCE(slot.active, false), COALESCE(slot.confirmed_flush_lsn, '0/0')
		FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c
		LEFT JOIN pg_catalog.pg_replication_slots slot ON slot.slot_name = $1`, slot)
	if err != nil {
		return p, err
	}
	return *found, nil
}
