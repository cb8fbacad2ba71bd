package checkpoint

import (
	"testing"
	"time"
)

// A snapshot sees no transaction after the newest one that has a delivered row, and the witness is a row of that one.
func TestWitness(t *testing.T) {
	t.Parallel()
	type row struct{ xid, hash uint32 }
	for name, tc := range map[string]struct {
		recorded Witness
		rows     []row
		text     string
		want     Snapshot
	}{
		"no row yet":                            {Witness{}, nil, "740:745:741", Snapshot{Text: "740:745:741"}},
		"the last transaction":                  {Witness{}, []row{{744, 1}}, "745:745:", Snapshot{Text: "745:745:", Witness: Witness{744, 1}}},
		"later transactions without a row":      {Witness{}, []row{{741, 1}}, "750:752:750", Snapshot{Text: "742:742:", Witness: Witness{741, 1}}},
		"one before it is running":              {Witness{}, []row{{741, 1}}, "738:752:738,740,750", Snapshot{Text: "738:742:738,740", Witness: Witness{741, 1}}},
		"the highest id, not the last one":      {Witness{}, []row{{743, 1}, {741, 2}}, "745:745:", Snapshot{Text: "744:744:", Witness: Witness{743, 1}}},
		"committed after the snapshot was read": {Witness{}, []row{{741, 1}, {747, 2}}, "740:745:741", Snapshot{Text: "740:745:741", Witness: Witness{747, 2}}},
		"of an earlier process":                 {Witness{741, 7}, nil, "750:752:750", Snapshot{Text: "742:742:", Witness: Witness{741, 7}}},
		"of another server":                     {Witness{900, 7}, []row{{739, 5}}, "750:752:750", Snapshot{Text: "740:740:", Witness: Witness{739, 5}}},
		"resent after an earlier process":       {Witness{741, 7}, []row{{739, 5}, {741, 7}}, "750:752:750", Snapshot{Text: "742:742:", Witness: Witness{741, 7}}},
		"next epoch":                            {Witness{1<<32 - 2, 7}, []row{{5, 1}}, "4294967310:4294967310:", Snapshot{Text: "4294967302:4294967302:", Witness: Witness{1<<32 + 5, 1}}},
		"before the end of an epoch":            {Witness{}, []row{{1<<32 - 3, 1}, {3, 2}}, "4294967300:4294967300:", Snapshot{Text: "4294967300:4294967300:", Witness: Witness{1<<32 + 3, 2}}},
		"of an epoch that has ended":            {Witness{}, []row{{1<<32 - 3, 1}}, "4294967300:4294967300:", Snapshot{Text: "4294967294:4294967294:", Witness: Witness{1<<32 - 3, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWitnesses(tc.recorded)
			for _, r := range tc.rows {
				w.Add(r.xid, r.hash)
			}
			got := w.Snapshot(tc.text)
			if got != tc.want || !ValidSnapshot(got.Text) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if name == "committed after the snapshot was read" {
				return // the next one has a higher xmax
			}
			if again := w.Snapshot(tc.text); again != got {
				t.Errorf("the next one without a row is %+v", again)
			}
		})
	}
}

// The newest row of a copy is the witness of the snapshot that follows it, unless a newer one is known.
func TestWitnessOfACopy(t *testing.T) {
	t.Parallel()
	w := NewWitnesses(Witness{741, 7})
	for _, row := range []Witness{{739, 1}, {743, 2}, {742, 3}} {
		w.Keep(row)
	}
	if want := (Witness{743, 2}); w.Newest() != want {
		t.Errorf("newest %+v", w.Newest())
	} else if got := w.Snapshot("750:752:750"); got.Text != "744:744:" || got.Witness != want {
		t.Errorf("%+v", got)
	}
}

// A snapshot with the witness of the one before may not see rows that were delivered before it. So they count as delivered since that one.
func TestCommitTimeOfAWitness(t *testing.T) {
	t.Parallel()
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	p := Position{}.WithSnapshot(Snapshot{Text: "742:742:", CommitTime: first, Witness: Witness{741, 1}})
	if p = p.WithSnapshot(Snapshot{Text: "742:742:", CommitTime: later, Witness: Witness{741, 1}}); p.Snapshots[0].CommitTime != first {
		t.Errorf("the same witness: %+v", p.Snapshots)
	}
	if p = p.WithSnapshot(Snapshot{Text: "743:743:", CommitTime: later, Witness: Witness{742, 1}}); p.Snapshots[0].CommitTime != later {
		t.Errorf("another one: %+v", p.Snapshots)
	}
	if adopted := p.Adopt(Server{}); adopted.Witness() != (Witness{}) || p.Witness() == (Witness{}) {
		t.Errorf("of a dump: %+v", adopted.Snapshots)
	}
}
