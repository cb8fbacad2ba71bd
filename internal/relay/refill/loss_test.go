package refill

import (
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Only a server whose slot does not continue at the record can be a copy without slots. One whose publication has left out rows needs no
// witness: the table that has it may have been replaced.
func TestWitnessOfALoss(t *testing.T) {
	server := checkpoint.Server{SystemID: "7", Timeline: 1, WALEnd: 300}
	record := checkpoint.Position{
		SystemID: "7", Timeline: 1, EndLSN: 200,
		Snapshots: []checkpoint.Snapshot{{EndLSN: 100, Text: "742:742:", Witness: checkpoint.Witness{XID: 741, Hash: 1}}},
	}
	for cause, wanted := range map[error]bool{
		replication.ErrSlotMissing: true, replication.ErrSlotLost: true, &checkpoint.GapError{Reason: errors.New("advanced")}: true,
		replication.ErrPublication: false, ErrUnfinished: false,
	} {
		l := &Loss{Record: record, begins: record, server: server, Cause: cause}
		if err := l.selectRows(); err != nil || (l.missing.Witness != nil) != wanted {
			t.Errorf("%v: witness %+v, %v", cause, l.missing.Witness, err)
		}
	}
}
