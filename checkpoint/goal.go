package checkpoint

import "github.com/jackc/pglogrepl"

// Goal returns what Confirmed and Prefix will return when every record up to the newest one is acknowledged and
// nothing else has been read. So a position that is stored together with these records can name all of them. Only
// the goroutine that reads the stream may call Goal.
func (t *Tracker) Goal() (confirmed pglogrepl.LSN, open Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	confirmed, open = t.Confirmed(), t.resume
	complete := t.inFlight.len()
	if complete > 0 && t.inFlight.tail().last == unfinished {
		complete--
		open = t.prefixToLast()
	}
	if complete > 0 {
		confirmed = max(confirmed, t.inFlight.at(complete-1).confirms)
	}
	if open.CommitLSN < confirmed {
		open = Prefix{}
	}
	return confirmed, open
}

// prefixToLast returns the rows of the newest transaction, which is unfinished, up to the newest record that has a
// mark. It first marks the newest record, unless the session is still reading rows again.
func (t *Tracker) prefixToLast() Prefix {
	txn := t.inFlight.tail()
	rowsTo := func(seq Seq) int64 { return t.resumed(txn.commitLSN) + int64(seq-txn.first) + 1 }
	newest := t.marks[len(t.marks)-1]
	if t.isOpen && t.open.commitLSN == txn.commitLSN && t.read.rows == rowsTo(t.last) && newest.seq < t.last {
		newest = mark{t.last, t.read.crc, t.bytes}
		t.marks = append(t.marks, newest)
	}
	if newest.seq < txn.first {
		return t.resume
	}
	return Prefix{txn.commitLSN, rowsTo(newest.seq), newest.crc}
}
