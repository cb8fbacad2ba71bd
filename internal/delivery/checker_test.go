package delivery_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// written returns the transactions. Aggregate a has the events 1 to 6 in three transactions with two events each.
// Aggregate b has 1 and 2 in the third one, which so has four. Transaction 9 was rolled back, and had event 3 of a.
func written() []delivery.Transaction {
	sequence := func(aggregate string, first int64, rows int) delivery.Sequence {
		return delivery.Sequence{Aggregate: aggregate, First: first, Rows: rows}
	}
	return []delivery.Transaction{
		{ID: tx(1), Sequences: []delivery.Sequence{sequence("a", 1, 2)}},
		{ID: tx(2), Sequences: []delivery.Sequence{sequence("a", 3, 2)}},
		{ID: tx(3), Sequences: []delivery.Sequence{sequence("a", 5, 2), sequence("b", 1, 2)}},
		{ID: tx(9), Fate: delivery.RolledBack, Sequences: []delivery.Sequence{sequence("a", 3, 1)}},
	}
}

func tx(n byte) uuid.UUID { return uuid.UUID{15: n} }

// event returns a committed event.
func event(aggregate string, seq int64) delivery.Event {
	e := delivery.Event{
		Aggregate: aggregate, Seq: seq, ID: fmt.Sprintf("id-%s%d", aggregate, seq), Tx: tx(3),
		Topic: "t", Key: aggregate, Value: fmt.Sprintf("secret %d", seq), Headers: []delivery.Header{{Key: "type", Value: "T"}},
	}
	if aggregate == "a" && seq < 5 {
		e.Tx = tx(byte(seq+1) / 2)
	}
	return e
}

// A delivered is a record, and the event that it claims to be.
type delivered struct {
	delivery.Record
	event *delivery.Event
}

// recordOf returns the correct record for e. a has partition 0, b has partition 1.
func recordOf(e delivery.Event) *delivered {
	return &delivered{
		delivery.Record{
			Coordinates: delivery.Coordinates{Topic: e.Topic, Partition: int32(e.Key[0] - 'a')},
			Key:         []byte(e.Key), Value: []byte(e.Value), Headers: slices.Clone(e.Headers),
		}, &e,
	}
}

// good returns the records of all committed events, those of a first.
func good() []*delivered {
	all := records("a", 1, 2, 3, 4, 5, 6)
	return append(all, records("b", 1, 2)...)
}

func records(aggregate string, seqs ...int64) (all []*delivered) {
	for _, seq := range seqs {
		all = append(all, recordOf(event(aggregate, seq)))
	}
	return all
}

// judge passes the records to a Checker, with increasing offsets unless they have one.
func judge(cfg delivery.Config, records []*delivered) *delivery.Checker {
	c := delivery.New(cfg)
	next := map[int32]int64{}
	for _, d := range records {
		if d.Offset == 0 {
			d.Offset = next[d.Partition]
		}
		next[d.Partition] = d.Offset + 1
		c.Record(&d.Record, d.event)
	}
	return c
}

// a returns records of a with the given numbers, followed by those of b.
func a(seqs ...int64) []*delivered { return append(records("a", seqs...), records("b", 1, 2)...) }

// changed returns the good records after a change of the third one of a.
func changed(change func(d *delivered)) []*delivered {
	all := good()
	change(all[2])
	return all
}

func TestEveryViolationIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		records []*delivered
		allowed int // allowed duplicates
		want    []string
	}{
		"nothing": {records: good()},
		"other aggregates between": {
			records: slices.Concat(records("b", 1), records("a", 1, 2, 3), records("b", 2), records("a", 4, 5, 6)),
		},
		"lost": {
			records: a(1, 2, 5, 6),
			want:    []string{"lost a/3 transaction {2} record t[0]@2: none of the 2 events came; the record is the first behind the gap"},
		},
		"lost at the end": {
			records: records("a", 1, 2, 3, 4),
			want:    []string{"lost a/5 transaction {3}: none of the 4 events came"},
		},
		"two lost in one gap": {
			records: a(1, 6),
			want: []string{
				"torn a/2 transaction {1} record t[0]@1: 1 of the 2 events came; the record is the first behind the gap",
				"lost a/3 transaction {2} record t[0]@1: none of the 2 events came; the record is the first behind the gap",
				"torn a/5 transaction {3} record t[0]@1: 3 of the 4 events came; the record is the first behind the gap",
			},
		},
		"torn": {
			records: a(1, 2, 3, 5, 6),
			want:    []string{"torn a/4 transaction {2} record t[0]@3: 1 of the 2 events came; the record is the first behind the gap"},
		},
		"torn at the end": {
			records: a(1, 2, 3, 4, 5),
			want:    []string{"torn a/6 transaction {3}: 3 of the 4 events came"},
		},
		"swapped": {
			records: a(1, 2, 4, 3, 5, 6),
			want:    []string{"out of order a/3 id id-a3 transaction {2} record t[0]@2: it came at t[0]@3, after a later event"},
		},
		"much too late": {
			records: a(2, 3, 4, 5, 6, 1),
			want:    []string{"out of order a/1 id id-a1 transaction {1} record t[0]@0: it came at t[0]@5, after a later event", "stale"},
		},
		"all in reverse": {
			records: a(6, 5, 4, 3, 2, 1),
			want:    []string{"out of order", "out of order", "out of order", "out of order", "out of order", "stale a/1 record t[0]@5: it is the last record of the aggregate, whose newest event is 6"},
		},
		"a rolled back event": {
			records: slices.Insert(good(), 2, recordOf(with(event("a", 3), func(e *delivery.Event) { e.Tx, e.Fate = tx(9), delivery.RolledBack }))),
			want:    []string{"phantom a/3 id id-a3 transaction {9} record t[0]@2: the event was rolled back"},
		},
		"an event that nobody wrote": {
			records: append(good(), recordOf(with(event("a", 7), func(e *delivery.Event) { e.Tx, e.Fate = tx(7), delivery.Unwritten }))),
			want:    []string{"phantom a/7 id id-a7 transaction {7} record t[0]@6: the event was never written"},
		},
		"a record of no event": {
			records: append(good(), &delivered{Record: delivery.Record{Coordinates: delivery.Coordinates{Topic: "t"}, Key: []byte("z")}}),
			want:    []string{"phantom z record t[0]@6: no event has such a record"},
		},
		"in doubt, and rolled back": {
			records: slices.Insert(good(), 2, recordOf(with(event("a", 3), func(e *delivery.Event) { e.Tx, e.Fate = tx(9), delivery.InDoubt }))),
			allowed: 1,
			want:    []string{"phantom a/3 transaction {9} record t[0]@2: the event turned out not to be committed"},
		},
		"in doubt, and committed": {
			records: changed(func(d *delivered) { d.event.Fate = delivery.InDoubt }),
		},
		"another topic": {
			records: changed(func(d *delivered) { d.Topic = "u" }),
			want:    []string{"altered a/3 id id-a3 transaction {2} record u[0]@2: its topic is not t", "torn a/3 transaction {2} record t[0]@3"},
		},
		"another key": {
			records: changed(func(d *delivered) { d.Key = []byte("b") }),
			want:    []string{`altered a/3 id id-a3 transaction {2} record t[0]@2: its key is "b", not "a"`, "torn a/3"},
		},
		"no key":         {records: changed(func(d *delivered) { d.Key = nil }), want: []string{"altered a/3", "torn a/3"}},
		"a tombstone":    {records: changed(func(d *delivered) { d.Value = nil }), want: []string{"altered a/3", "torn a/3"}},
		"a header more":  {records: changed(func(d *delivered) { d.Headers = append(d.Headers, delivery.Header{}) }), want: []string{"altered a/3", "torn a/3"}},
		"no header":      {records: changed(func(d *delivered) { d.Headers = nil }), want: []string{"altered a/3", "torn a/3"}},
		"another header": {records: changed(func(d *delivered) { d.Headers[0].Value = "U" }), want: []string{"altered a/3", "torn a/3"}},
		"a bit of the value": {
			records: changed(func(d *delivered) { d.Value[3] ^= 1 }),
			want:    []string{"altered a/3 id id-a3 transaction {2} record t[0]@2: its value is not the event's", "torn a/3"},
		},
		"the values of two aggregates swapped": {
			records: func() []*delivered {
				all := good()
				all[0].Value, all[7].Value = all[7].Value, all[0].Value
				return all
			}(),
			want: []string{"altered a/1", "torn a/1", "altered b/2", "torn b/2"},
		},
		"damage that the caller has found": {
			records: changed(func(d *delivered) { d.Damage = "its checksum is wrong" }),
			want:    []string{"altered a/3 id id-a3 transaction {2} record t[0]@2: its checksum is wrong", "torn a/3"},
		},
		"damage that hides which event it is": {
			records: changed(func(d *delivered) { d.Damage, d.event = "its checksum is wrong", nil }),
			want:    []string{"altered a record t[0]@2: its checksum is wrong", "torn a/3"},
		},
		"another partition": {
			records: func() []*delivered {
				all := good()
				all[5].Partition = 4
				return all
			}(),
			want: []string{"misplaced a/6 id id-a6 transaction {3} record t[4]@0: its aggregate's first record is in t[0]"},
		},
		"as many duplicates as there may be": {
			records: append(good(), records("a", 5, 6)...), allowed: 2,
		},
		"a duplicate too many": {
			records: append(good(), records("a", 5, 6)...), allowed: 1,
			want: []string{
				"duplicate a/5 id id-a5 transaction {3} record t[0]@6: the event has an earlier record: duplicate 1 of 2, allowed: 1",
				"duplicate a/6 id id-a6 transaction {3} record t[0]@7: the event has an earlier record: duplicate 2 of 2, allowed: 1",
			},
		},
		"an old event last": {
			records: append(good(), records("a", 5)...), allowed: 1,
			want: []string{"stale a/5 record t[0]@6: it is the last record of the aggregate, whose newest event is 6"},
		},
		"offsets that do not rise": {
			records: func() []*delivered {
				all := good()
				all[4].Offset, all[5].Offset = 40, 40
				return all
			}(),
			want: []string{"offsets a/6 id id-a6 transaction {3} record t[0]@40: it was read after offset 40"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := judge(delivery.Config{}, tc.records).Finish(slices.Values(written()), tc.allowed)
			var got []string
			for _, v := range found.First {
				got = append(got, short(v.String()))
			}
			for i := range min(len(got), len(tc.want)) {
				if strings.HasPrefix(got[i], tc.want[i]) {
					got[i] = tc.want[i]
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || found.All != len(got) {
				t.Errorf("%d violations (-want +got):\n%s", found.All, diff)
			}
			if strings.Contains(found.String(), "secret") {
				t.Errorf("a payload is in %s", found)
			}
		})
	}
}

// short replaces the id of transaction n by {n}.
func short(text string) string {
	for n := range byte(10) {
		text = strings.ReplaceAll(text, tx(n).String(), fmt.Sprintf("{%d}", n))
	}
	return text
}

func with(e delivery.Event, change func(*delivery.Event)) delivery.Event {
	change(&e)
	return e
}

func TestAnyPartitionAllowsAggregatesToMove(t *testing.T) {
	all := append(good(), records("a", 5)...)
	all[5].Partition, all[8].Partition = 4, 4
	if found := judge(delivery.Config{AnyPartition: true}, all).Finish(slices.Values(written()), 1); found.All > 0 {
		t.Error(found)
	}
}

// An event that may be missing leaves no gap, but it may neither be late nor excuse others.
func TestDiscardedEventMayBeMissing(t *testing.T) {
	discarded := map[int64]bool{3: true, 6: true}
	cfg := delivery.Config{Missing: func(aggregate string, seq int64) bool { return aggregate == "a" && discarded[seq] }}
	for name, tc := range map[string]struct {
		came    []int64
		claimed []int64 // were not discarded after all
		want    []string
	}{
		"missing":           {came: []int64{1, 2, 4, 5}},
		"delivered":         {came: []int64{1, 2, 3, 4, 5, 6}},
		"late":              {came: []int64{1, 2, 4, 3, 5}, want: []string{"out of order a/3"}},
		"another one":       {came: []int64{1, 4, 5}, want: []string{"torn a/2"}},
		"not discarded":     {came: []int64{1, 2, 4, 5}, claimed: []int64{3}, want: []string{"torn a/3"}},
		"the last is not":   {came: []int64{1, 2, 4, 5}, claimed: []int64{6}, want: []string{"torn a/6"}},
		"nothing was there": {want: []string{"lost a/1", "torn a/4", "torn a/5"}},
	} {
		t.Run(name, func(t *testing.T) {
			discarded[3], discarded[6] = true, true
			c := judge(cfg, append(records("b", 1, 2), records("a", tc.came...)...))
			for _, seq := range tc.claimed {
				discarded[seq] = false
			}
			found := c.Finish(slices.Values(written()), 0)
			var got []string
			for _, v := range found.First {
				got = append(got, fmt.Sprintf("%s %s/%d", v.Kind, v.Aggregate, v.Seq))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The Checker reports a gap at once. Later it reports what the gap has become.
func TestGapIsFoundAtOnce(t *testing.T) {
	c := judge(delivery.Config{}, records("a", 1, 2, 5))
	v := c.Violations()
	if got := v.First[0].String(); v.All != 1 || got != "gap a/3 record t[0]@2: it has not come, but 5 has" || c.Delivered("a") != 2 {
		t.Errorf("%d events in a row, %s", c.Delivered("a"), v)
	}
	late := recordOf(event("a", 4))
	late.Offset = 3
	if o := c.Record(&late.Record, late.event); o != delivery.Late {
		t.Errorf("outcome %d", o)
	}
	if v := c.Violations(); v.All != 1 || v.First[0].Kind != delivery.OutOfOrder || v.First[0].Seq != 4 {
		t.Error(v)
	}
	for range 2 { // calling Finish again changes nothing
		if v := c.Finish(slices.Values(written()[:2]), 0); v.All != 3 || v.First[1].Kind != delivery.Torn || v.First[1].Seq != 3 {
			t.Error(v)
		}
	}
}

func TestTransactionInDoubtMayHaveComeOrNot(t *testing.T) {
	doubtful := written()
	doubtful[2].Fate = delivery.InDoubt
	all := good()
	for _, d := range all {
		if d.event.Tx == tx(3) {
			d.event.Fate = delivery.InDoubt
		}
	}
	for name, came := range map[string][]*delivered{"came": all, "did not come": all[:4]} {
		if found := judge(delivery.Config{}, came).Finish(slices.Values(doubtful), 0); found.All > 0 {
			t.Errorf("%s: %s", name, found)
		}
	}
}

func TestForgottenAggregateHasDuplicatesOnly(t *testing.T) {
	c := judge(delivery.Config{}, good())
	c.Forget("a")
	again := recordOf(with(event("a", 6), func(e *delivery.Event) { e.Fate = delivery.Forgotten }))
	if o := c.Record(&again.Record, again.event); o != delivery.Again {
		t.Errorf("outcome %d", o)
	}
	if diff := cmp.Diff(delivery.Counts{Records: 9, Events: 8, Duplicates: 1}, c.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestCounts(t *testing.T) {
	all := slices.Concat(records("a", 1, 3, 2, 2), records("b", 1, 2))
	all[5].Partition = 3
	all[4].Value = nil
	all = append(all, &delivered{})
	want := delivery.Counts{Records: 7, Events: 4, Duplicates: 1, OutOfOrder: 1, Misplaced: 0, Altered: 1, Phantoms: 1}
	if diff := cmp.Diff(want, judge(delivery.Config{}, all).Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestViolationsAreCountedBeyondThoseKept(t *testing.T) {
	var all []*delivered
	for range 150 {
		all = append(all, &delivered{})
	}
	if v := judge(delivery.Config{}, all).Violations(); v.All != 150 || len(v.First) != 100 || strings.Count(v.String(), "\n") != 10 {
		t.Errorf("%d kept, %s", len(v.First), v)
	}
}

// model computes the results by searching all earlier numbers each time.
func model(seqs []int64, events int) (first, duplicates, late, lost int) {
	for i, seq := range seqs {
		switch before := seqs[:i]; {
		case slices.Contains(before, seq):
			duplicates++
		case len(before) > 0 && slices.Max(before) > seq:
			late++
			fallthrough
		default:
			first++
		}
	}
	return first, duplicates, late, events - first
}

func TestRandomOrdersAreJudgedAsByTheModel(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		events := 1 + rng.IntN(12)
		var seqs []int64
		var all []*delivered
		for range rng.IntN(20) {
			seq := 1 + rng.Int64N(int64(events))
			seqs, all = append(seqs, seq), append(all, records("b", seq)...)
		}
		c := judge(delivery.Config{}, all)
		first, duplicates, late, lost := model(seqs, events)
		want := delivery.Counts{Records: len(seqs), Events: first, Duplicates: duplicates, OutOfOrder: late}
		if diff := cmp.Diff(want, c.Counts()); diff != "" {
			t.Fatalf("seed %d, %v: %s", seed, seqs, diff)
		}
		found := c.Finish(delivery.UpTo(map[string]int{"b": events}), duplicates)
		if isLost := slices.ContainsFunc(found.First, func(v delivery.Violation) bool { return v.Kind == delivery.Lost }); isLost != (lost > 0) {
			t.Fatalf("seed %d, %v of %d: %s", seed, seqs, events, found)
		}
		if slices.ContainsFunc(found.First, func(v delivery.Violation) bool { return v.Kind == delivery.Gap }) && lost > 0 {
			t.Fatalf("seed %d, %v of %d: a gap is left: %s", seed, seqs, events, found)
		}
	}
}
