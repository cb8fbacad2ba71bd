package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// A Witness is a row that was delivered before a [Snapshot]. A server that has the row has every transaction that was committed before it,
// and has used every transaction id up to XID. A copy of the server from before the row lacks it, and may use later ids a second time, for
// rows that were never delivered. The zero Witness is no row.
type Witness struct {
	XID  uint64 // of the transaction that inserted the row, with its epoch: the highest one of the rows that were read
	Hash uint32 // of the row's content
}

// Witnesses finds the Witness of each Snapshot. One goroutine uses it.
type Witnesses struct {
	newest Witness

	// The row with the highest id that was read since the last Snapshot. The stream has ids without epoch.
	xid, hash uint32
	read      bool
}

// NewWitnesses returns the Witnesses of a relay whose newest Witness was w.
func NewWitnesses(w Witness) Witnesses { return Witnesses{newest: w} }

// Add says that the next Snapshot is delivered only if a row is, which the transaction xid has inserted.
// https://www.postgresql.org/docs/current/transaction-id.html
func (w *Witnesses) Add(xid, hash uint32) {
	if !w.read || int32(xid-w.xid) > 0 {
		w.xid, w.hash, w.read = xid, hash, true
	}
}

// Keep says that row is delivered too. The next Snapshot has the newest one.
func (w *Witnesses) Keep(row Witness) {
	if row.XID > w.newest.XID {
		w.newest = row
	}
}

// Newest returns the Witness of the last Snapshot, or a newer one that was given to Keep.
func (w *Witnesses) Newest() Witness { return w.newest }

// Snapshot returns the Snapshot with text, which must be a [ValidSnapshot], and its Witness. It sees no transaction after the one of the
// Witness, because a copy of the server may use their ids for other rows. Of rows that were delivered, that leaves out those that an earlier
// process has sent after its last Snapshot, until another row follows.
func (w *Witnesses) Snapshot(text string) Snapshot {
	bounds := strings.SplitN(text, ":", 3)
	xmin, _ := transactionID(bounds[0])
	xmax, _ := transactionID(bounds[1])
	if w.newest.XID >= xmax { // an earlier snapshot's, so it is of another server
		w.newest = Witness{}
	}
	if w.read {
		// The id is within 2^31 of xmax, because both are in use.
		if xid := xmax + uint64(int32(w.xid-uint32(xmax))); xid > w.newest.XID {
			w.newest = Witness{xid, w.hash}
		}
		w.read = false
	}
	end := w.newest.XID + 1
	if w.newest == (Witness{}) || end >= xmax {
		return Snapshot{Text: text, Witness: w.newest}
	}
	var running []string
	for id := range strings.SplitSeq(bounds[2], ",") {
		if xid, ok := transactionID(id); ok && xid < end {
			running = append(running, strconv.FormatUint(xid, 10))
		}
	}
	return Snapshot{Text: fmt.Sprintf("%d:%d:%s", min(xmin, end), end, strings.Join(running, ",")), Witness: w.newest}
}

// Witness returns the Witness of the newest snapshot: during a refill, that of the lost slot on this timeline, unless it may be missing.
func (p Position) Witness() Witness {
	if r := p.Refill; r != nil && r.continues(p) && !r.Unpruned {
		p = r.Lost
	}
	if len(p.Snapshots) == 0 {
		return Witness{}
	}
	return p.Snapshots[0].Witness
}
