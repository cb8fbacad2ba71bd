package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

func newRow(key string, version int) row {
	return row{id: uuid.Must(uuid.NewV7()), topic: "outbox.event.order", key: key, kind: "OrderPaid", version: version}
}

// receive passes a record with the next offset to the ledger.
func receive(l *ledger, r row, now time.Time) (took time.Duration, ok bool) {
	return l.receive(r, delivery.Coordinates{Topic: r.topic, Offset: int64(l.counts().records)}, now)
}

func commit(l *ledger, rows ...row) {
	l.enter(delivery.Committed, rows...)
	l.committed(len(rows))
}

func TestLedger(t *testing.T) {
	for name, test := range map[string]struct {
		play func(l *ledger)
		want counts
	}{
		"delivered after the commit's answer": {
			func(l *ledger) {
				a, b := newRow("1", 1), newRow("2", 1)
				commit(l, a, b)
				receive(l, b, time.Now())
				receive(l, a, time.Now())
			},
			counts{transactions: 1, rows: 2, records: 2},
		},
		"delivered before the commit's answer": {
			func(l *ledger) {
				a := newRow("1", 1)
				l.enter(delivery.Committed, a)
				receive(l, a, time.Now())
				l.committed(1)
			},
			counts{transactions: 1, rows: 1, records: 1},
		},
		"not delivered": {
			func(l *ledger) {
				a := newRow("1", 1)
				commit(l, a)
			},
			counts{transactions: 1, rows: 1, missing: 1},
		},
		"delivered twice": {
			func(l *ledger) {
				a := newRow("1", 1)
				commit(l, a)
				receive(l, a, time.Now())
				receive(l, a, time.Now())
			},
			counts{transactions: 1, rows: 1, records: 2, duplicates: 1},
		},
		"delivered again after it was forgotten": {
			func(l *ledger) {
				a := newRow("1", 1)
				commit(l, a)
				receive(l, a, time.Now())
				l.forget(time.Now().Add(remember + time.Second))
				receive(l, a, time.Now().Add(remember+time.Second))
			},
			counts{transactions: 1, rows: 1, records: 2, duplicates: 1},
		},
		"repeats in order of a key": {
			func(l *ledger) {
				a, b := newRow("1", 1), newRow("1", 2)
				commit(l, a)
				commit(l, b)
				for _, r := range []row{a, b, a, b} {
					receive(l, r, time.Now())
				}
			},
			counts{transactions: 2, rows: 2, records: 4, duplicates: 2},
		},
		"out of order": {
			func(l *ledger) {
				rows := []row{newRow("1", 1), newRow("1", 2), newRow("1", 3), newRow("2", 1)}
				for _, r := range rows {
					commit(l, r)
				}
				for _, i := range []int{3, 0, 2, 1} {
					receive(l, rows[i], time.Now())
				}
			},
			counts{transactions: 4, rows: 4, records: 4, disordered: 1},
		},
		"rolled back and delivered": {
			func(l *ledger) {
				a := newRow("1", 1)
				l.enter(delivery.RolledBack, a)
				receive(l, a, time.Now())
			},
			counts{rolledBack: 1, records: 1, invented: 1},
		},
		"never written": {
			func(l *ledger) { receive(l, newRow("1", 1), time.Now()) },
			counts{records: 1, invented: 1},
		},
		"without an id": {
			func(l *ledger) { receive(l, row{topic: "outbox.event.order", key: "1"}, time.Now()) },
			counts{records: 1, invented: 1},
		},
		"other key": {
			func(l *ledger) {
				a := newRow("1", 1)
				commit(l, a)
				a.key = "2"
				receive(l, a, time.Now())
			},
			counts{transactions: 1, rows: 1, records: 1, missing: 1, invented: 1},
		},
		"unknown outcome": {
			func(l *ledger) {
				a, b := newRow("1", 1), newRow("1", 1)
				l.enter(delivery.Committed, a)
				l.enter(delivery.Committed, b)
				receive(l, b, time.Now())
			},
			counts{records: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			test.play(l)
			if diff := cmp.Diff(test.want, l.counts(), cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLedgerForgetsOnlyWhatIsSettled(t *testing.T) {
	l := newLedger()
	received, missing, dropped := newRow("1", 1), newRow("2", 1), newRow("3", 1)
	received.final = true
	commit(l, received, missing)
	l.enter(delivery.RolledBack, dropped)
	receive(l, received, time.Now())
	l.forget(time.Now().Add(remember / 2))
	if len(l.rows) != 3 || l.checker.Delivered(received.aggregate()) != 1 {
		t.Errorf("early: %d rows, %d of the key", len(l.rows), l.checker.Delivered(received.aggregate()))
	}
	l.forget(time.Now().Add(remember + time.Second))
	if len(l.rows) != 1 || l.checker.Delivered(received.aggregate()) != 0 {
		t.Errorf("late: %d rows, %d of the key", len(l.rows), l.checker.Delivered(received.aggregate()))
	}
	if took, ok := receive(l, missing, time.Now()); !ok || took <= 0 {
		t.Errorf("the missing record was received: %v after %s", ok, took)
	}
}

func TestWindowForgetsOldSeconds(t *testing.T) {
	var w window
	now := time.Unix(1_700_000_000, 0)
	for range 3 * windowSeconds {
		w.record(time.Millisecond, now)
		now = now.Add(time.Second)
	}
	if n := w.sum(now).Count(); n != windowSeconds {
		t.Errorf("%d of the last %d seconds", n, windowSeconds)
	}
	if n := w.sum(now.Add(time.Hour)).Count(); n != 0 {
		t.Errorf("%d an hour later", n)
	}
}
