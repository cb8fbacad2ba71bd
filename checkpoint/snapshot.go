package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Snapshot is the result of pg_current_snapshot() in a transaction that ended at EndLSN.
// When EndLSN is confirmed, every transaction that is visible in the snapshot is delivered.
// https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
type Snapshot struct {
	EndLSN pglogrepl.LSN
	Text   string // xmin:xmax:xip_list; [ValidSnapshot]

	// CommitTime is that of the transaction: what is not visible in the snapshot was committed later. Zero: unknown.
	CommitTime time.Time

	Witness Witness // zero: no row was delivered yet
}

type snapshotJSON struct {
	EndLSN     string       `json:"end_lsn"`
	Text       string       `json:"snapshot"`
	CommitTime time.Time    `json:"commit_time,omitzero"`
	Witness    *witnessJSON `json:"witness,omitempty"`
}

type witnessJSON struct {
	XID  uint64 `json:"xid,string"`
	Hash uint32 `json:"hash"`
}

func (s Snapshot) toJSON() snapshotJSON {
	v := snapshotJSON{EndLSN: s.EndLSN.String(), Text: s.Text, CommitTime: s.CommitTime}
	if s.Witness != (Witness{}) {
		v.Witness = new(witnessJSON(s.Witness))
	}
	return v
}

func (v snapshotJSON) parse() (Snapshot, error) {
	lsn, err := pglogrepl.ParseLSN(v.EndLSN)
	if err != nil {
		return Snapshot{}, fmt.Errorf("end_lsn of a snapshot: %w", err)
	}
	s := Snapshot{EndLSN: lsn, Text: v.Text, CommitTime: v.CommitTime}
	if v.Witness != nil {
		s.Witness = Witness(*v.Witness)
	}
	return s, nil
}

// MaxSnapshot limits the text of a Snapshot, in bytes. It has room for more than 3,000 running
// transactions with ids of twenty digits, and a position record has room for a few such snapshots.
const MaxSnapshot = 64 << 10

// ValidSnapshot reports whether pg_current_snapshot() could have returned text, and text has at most
// [MaxSnapshot] bytes. The format is xmin:xmax:xip_list, with decimal numbers of 64 bits: xmin is not 0,
// xmax is not below xmin, and the comma-separated list ascends from xmin to below xmax.
func ValidSnapshot(text string) bool {
	if len(text) > MaxSnapshot {
		return false
	}
	bounds := strings.SplitN(text, ":", 3)
	if len(bounds) != 3 {
		return false
	}
	xmin, hasMin := transactionID(bounds[0])
	xmax, hasMax := transactionID(bounds[1])
	if !hasMin || !hasMax || xmax < xmin {
		return false
	}
	if bounds[2] == "" {
		return true
	}
	lowest := xmin
	for id := range strings.SplitSeq(bounds[2], ",") {
		running, ok := transactionID(id)
		if !ok || running < lowest || running >= xmax {
			return false
		}
		lowest = running + 1
	}
	return true
}

// transactionID parses an xid8 as Postgres prints it, without leading zeros or sign.
func transactionID(text string) (id uint64, ok bool) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, false
	}
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil
}
