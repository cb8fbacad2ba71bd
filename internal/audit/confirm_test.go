package audit

import "testing"

// A transaction is delivered if the snapshot sees it, that is, if it ended before the snapshot was taken.
func TestSnapshotSees(t *testing.T) {
	s := recordedSnapshot{xmin: 10, xmax: 20, running: map[uint64]bool{10: true, 15: true}}
	for xid, want := range map[uint64]bool{0: false, 9: true, 10: false, 11: true, 15: false, 19: true, 20: false, 21: false} {
		if s.sees(xid) != want {
			t.Errorf("transaction %d: %t", xid, !want)
		}
	}
}

func TestLSNOfAHeader(t *testing.T) {
	for text, want := range map[string]uint64{"0/1A": 0x1A, "2/0000001A": 0x20000001A, "": 0, "7": 0, "x/1": 0, "1/x": 0} {
		if got := parseLSN(text); got != want {
			t.Errorf("%q: %X", text, got)
		}
	}
}
