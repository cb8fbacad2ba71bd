package relay

import (
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An epoch is what a position is valid for. After a promotion or on another server the
// same number names other data, so a position never crosses epochs.
type epoch struct {
	system replication.System
	slot   string
}

// A position is what the last session leaves to the next one.
type position struct {
	epoch     epoch
	confirmed pglogrepl.LSN // every transaction that ends at or before it is acknowledged
	cut       cut
}

// A cut is a transaction whose stream was lost in the middle. It comes again whole; the
// rows that were acknowledged are not sent again. The zero value is no transaction.
type cut struct {
	commitLSN pglogrepl.LSN
	acked     int // its first rows, all acknowledged
}

// resume returns where the next session of e starts: at the position if it belongs to e,
// else at 0/0, which leaves the choice to the slot. Never at a position merely read from
// the server: START_REPLICATION obeys one ahead of the slot and skips what lies between.
func (p position) resume(e epoch) (pglogrepl.LSN, cut) {
	if p.epoch != e {
		return 0, cut{}
	}
	return p.confirmed, p.cut
}
