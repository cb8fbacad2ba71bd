package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// epoch is when the tests' histories begin.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// A script is a history written by hand: the aggregate a has the events 1 to 6
// in three transactions of two, b has 1 and 2 in the third one, which so has
// four rows. z was rolled back.
type script struct {
	*Checker
	journal *Journal
	offset  map[string]int64
	now     time.Time // when records are seen
	epoch   int16     // of producers
}

func tx(n byte) uuid.UUID { return uuid.UUID{15: n} }

const rolledBack = 9

func newScript() *script {
	j := NewJournal(nil)
	for i, sequences := range [][]delivery.Sequence{{{Aggregate: "a", First: 1, Rows: 2}}, {{Aggregate: "a", First: 3, Rows: 2}}, {{Aggregate: "a", First: 5, Rows: 2}, {Aggregate: "b", First: 1, Rows: 2}}} {
		j.Begin(tx(byte(i+1)), epoch.Add(time.Duration(i)*time.Second), sequences)
		j.Resolve(tx(byte(i+1)), delivery.Committed)
	}
	j.Begin(tx(rolledBack), epoch, []delivery.Sequence{{Aggregate: "a", First: 3, Rows: 1}})
	j.Resolve(tx(rolledBack), delivery.RolledBack)
	return &script{Checker: NewChecker("run", j, delivery.Config{}), journal: j, offset: map[string]int64{}, now: epoch.Add(time.Minute)}
}

func scriptEvent(aggregate string, seq int64) Event {
	e := Event{Run: "run", Aggregate: aggregate, Seq: seq, Tx: tx(3), Count: 4}
	switch {
	case aggregate == "b":
		e.Index = int(seq) + 1
	case seq <= 4:
		e.Tx, e.Index, e.Count = tx(byte((seq+1)/2)), int((seq-1)%2), 2
	default:
		e.Index = int(seq - 5)
	}
	return e
}

func recordOf(e Event, p int32, offset int64, producer Producer, seen time.Time) *Record {
	return &Record{
		Record: delivery.Record{
			Coordinates: delivery.Coordinates{Topic: "t", Partition: p, Offset: offset},
			Key:         []byte(e.Aggregate), Value: e.Payload(200), Headers: e.Headers(),
		},
		Producer: producer, Seen: seen,
	}
}

// put adds records of an aggregate by a producer; each aggregate has a partition.
func (s *script) put(aggregate string, producer int64, seqs ...int64) {
	for _, seq := range seqs {
		s.putRecord(s.next(aggregate, producer, seq))
	}
}

func (s *script) next(aggregate string, producer, seq int64) *Record {
	p := int32(aggregate[0] - 'a')
	return recordOf(scriptEvent(aggregate, seq), p, s.offset[aggregate], Producer{producer, s.epoch}, s.now)
}

func (s *script) putRecord(r *Record) {
	s.offset[string('a'+r.Partition)] = r.Offset + 1
	s.Record(r)
}

func explains(n int) func() int { return func() int { return n } }

// What package delivery finds has its tests there.
func TestChecker(t *testing.T) {
	type want struct {
		kind      delivery.Kind
		aggregate string
		seq       int64
		record    string // empty: no record shows it
	}
	for name, tc := range map[string]struct {
		play func(s *script)
		want []want
	}{
		"nothing wrong": {play: func(s *script) {
			s.put("a", 1, 1, 2, 3, 4, 5, 6)
			s.put("b", 1, 1, 2)
		}},
		"a transaction without rows": {play: func(s *script) {
			s.journal.Begin(tx(4), epoch, nil)
			s.journal.Resolve(tx(4), delivery.Committed)
			s.put("a", 1, 1, 2, 3, 4, 5, 6)
			s.put("b", 1, 1, 2)
		}},
		"explained repetition": {play: func(s *script) {
			s.put("a", 1, 1, 2, 3)
			s.Fault("kill", epoch.Add(time.Second), explains(2))
			s.put("a", 2, 2, 3, 4, 5, 6)
			s.put("b", 2, 1, 2)
		}},
		"repeated because of the fault before the last": {play: func(s *script) {
			s.put("a", 1, 1, 2, 3)
			s.Fault("kill", epoch.Add(time.Second), explains(2))
			s.put("a", 2, 2)
			s.Fault("pause", epoch.Add(2*time.Minute), nil)
			s.now = epoch.Add(3 * time.Minute)
			s.put("a", 2, 3, 4, 5, 6)
			s.put("b", 2, 1, 2)
		}},
		"a producer that appeared in another topic before the last fault": {play: func(s *script) {
			s.put("a", 1, 1, 2, 3)
			s.Fault("kill", epoch.Add(time.Second), explains(2))
			s.Appears(Producer{2, s.epoch}, s.now)
			s.Fault("pause", epoch.Add(2*time.Minute), nil)
			s.now = epoch.Add(3 * time.Minute)
			s.put("a", 2, 2, 3, 4, 5, 6)
			s.put("b", 2, 1, 2)
		}},
		"what an older fault explains does not excuse a later one": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3)
				s.Fault("kill", epoch.Add(time.Second), explains(20))
				s.put("a", 2, 3, 4)
				s.Fault("terminate", epoch.Add(2*time.Minute), nil)
				s.now = epoch.Add(3 * time.Minute)
				s.put("a", 3, 4, 5, 6)
				s.put("b", 3, 1, 2)
			},
			want: []want{{delivery.Duplicate, "a", 4, "t[0]@5"}},
		},
		"two producers between each other, each in order": {
			play: func(s *script) {
				s.put("a", 1, 1, 2)
				s.Fault("kill", epoch.Add(time.Second), explains(3))
				s.put("a", 2, 1, 2)
				s.put("a", 1, 3)
				s.put("a", 2, 3, 4, 5, 6)
				s.put("b", 2, 1, 2)
			},
			want: []want{{OldWriter, "a", 0, "t[0]@4"}},
		},
		"the older epoch behind the newer one, and nothing but what is new": {
			play: func(s *script) {
				s.epoch = 3
				s.put("a", 1, 1, 2)
				s.epoch = 5
				s.put("a", 1, 3)
				s.epoch = 3
				s.put("a", 1, 4)
				s.epoch = 5
				s.put("a", 1, 5, 6)
				s.put("b", 1, 1, 2)
			},
			want: []want{{OldWriter, "a", 0, "t[0]@3"}},
		},
		"the older epoch where the newer one has not been": {play: func(s *script) {
			s.epoch = 3
			s.put("a", 1, 1, 2, 3)
			s.epoch = 5
			s.put("a", 1, 4, 5, 6)
			s.epoch = 3
			s.put("b", 1, 1)
			s.epoch = 5
			s.put("b", 1, 2)
		}},
		"two relays with one epoch": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3)
				s.put("a", 1, 2)
				s.put("a", 1, 4, 5, 6)
				s.put("b", 1, 1, 2)
			},
			want: []want{{delivery.Duplicate, "a", 2, "t[0]@3"}, {delivery.Duplicate, "a", 2, "t[0]@3"}},
		},
		"left out, and written when it came again": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 4)
				s.Fault("kill", epoch.Add(time.Second), explains(10))
				s.put("a", 2, 2, 3, 4, 5, 6)
				s.put("b", 2, 1, 2)
			},
			want: []want{{delivery.OutOfOrder, "a", 3, "t[0]@2"}},
		},
		"repeated by one producer": {
			play: func(s *script) {
				s.Fault("kill", epoch, explains(10))
				s.put("a", 1, 1, 2, 2, 3, 4, 5, 6)
				s.put("b", 1, 1, 2)
			},
			want: []want{{delivery.Duplicate, "a", 2, "t[0]@2"}},
		},
		"repeated without a fault": {
			play: func(s *script) { s.put("a", 1, 1, 2); s.put("a", 2, 2, 3, 4, 5, 6); s.put("b", 2, 1, 2) },
			want: []want{{delivery.Duplicate, "a", 2, "t[0]@2"}},
		},
		"repeated more than the fault explains": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3)
				s.Fault("kill", epoch.Add(time.Second), explains(1))
				s.put("a", 2, 2, 3, 4, 5, 6)
				s.put("b", 2, 1, 2)
			},
			want: []want{{delivery.Duplicate, "a", 3, "t[0]@4"}},
		},
		"a repetition leaves out an event": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3, 4)
				s.Fault("kill", epoch.Add(time.Second), explains(10))
				s.put("a", 2, 1, 3, 4, 5, 6)
				s.put("b", 2, 1, 2)
			},
			want: []want{{BrokenRun, "a", 3, "t[0]@5"}},
		},
		"a repetition goes on behind what is stored": {play: func(s *script) {
			s.put("a", 1, 1, 2, 3, 4)
			s.Fault("kill", epoch.Add(time.Second), explains(2))
			s.put("a", 2, 1, 2, 5, 6)
			s.put("b", 2, 1, 2)
		}},
		"without identities a repetition leaves out an event": {
			play: func(s *script) {
				s.put("a", -1, 1, 2, 3, 4)
				s.Fault("kill", epoch.Add(time.Second), explains(10))
				s.put("a", -1, 1, 3, 4, 5, 6)
				s.put("b", -1, 1, 2)
			},
			want: []want{{BrokenRun, "a", 3, "t[0]@5"}},
		},
		"rolled back": {
			play: func(s *script) {
				s.put("a", 1, 1, 2)
				s.putRecord(recordOf(Event{Run: "run", Aggregate: "a", Seq: 3, Tx: tx(rolledBack), Count: 1}, 0, 2, Producer{ID: 1}, epoch))
				s.put("a", 1, 3, 4, 5, 6)
				s.put("b", 1, 1, 2)
			},
			want: []want{{delivery.Phantom, "a", 3, "t[0]@2"}},
		},
		"rolled back, as turns out later": {
			play: func(s *script) {
				s.journal.Begin(tx(4), epoch, []delivery.Sequence{{Aggregate: "b", First: 3, Rows: 1}})
				s.journal.Resolve(tx(4), delivery.InDoubt)
				s.put("a", 1, 1, 2, 3, 4, 5, 6)
				s.put("b", 1, 1, 2)
				s.putRecord(recordOf(Event{Run: "run", Aggregate: "b", Seq: 3, Tx: tx(4), Count: 1}, 1, 2, Producer{ID: 1}, epoch))
				s.journal.Resolve(tx(4), delivery.RolledBack)
			},
			want: []want{{delivery.Phantom, "b", 3, "t[1]@2"}},
		},
		"nobody's transaction": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3, 4, 5, 6)
				s.put("b", 1, 1, 2)
				s.putRecord(recordOf(Event{Run: "run", Aggregate: "b", Seq: 3, Tx: tx(77), Count: 1}, 1, 2, Producer{}, epoch))
			},
			want: []want{{delivery.Phantom, "b", 3, "t[1]@2"}},
		},
		"never resolved": {
			play: func(s *script) {
				s.put("a", 1, 1, 2, 3, 4, 5, 6)
				s.put("b", 1, 1, 2)
				s.journal.Begin(tx(4), epoch, []delivery.Sequence{{Aggregate: "b", First: 3, Rows: 1}})
			},
			want: []want{{Unresolved, "", 0, ""}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			tc.play(s)
			s.Finish()
			got, all := s.Violations()
			if all != len(tc.want) {
				t.Fatalf("%d violations, want %d: %v", all, len(tc.want), texts(got))
			}
			for i, w := range tc.want {
				g := got[i]
				record := ""
				if g.Record != (delivery.Coordinates{}) {
					record = g.Record.String()
				}
				if diff := cmp.Diff(w, want{g.Kind, g.Aggregate, g.Seq, record}, cmp.AllowUnexported(want{})); diff != "" {
					t.Errorf("found %s\n%s", g.String(), diff)
				}
			}
		})
	}
}

// A topic makes progress only if it receives a record that was written later itself.
func TestTopicThatStandsStill(t *testing.T) {
	s := newScript()
	written := func(n int) time.Time { return epoch.Add(time.Duration(n-1) * time.Second) } // see newScript
	check := func(since time.Time, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.Behind(since, "t", "u")); diff != "" {
			t.Errorf("behind %v: %s", since.Sub(epoch), diff)
		}
	}
	s.put("a", 1, 1, 2, 3, 4)
	check(written(1), "u")
	check(written(2), "t", "u")
	r := s.next("b", 1, 1) // of the third transaction
	r.Topic = "u"
	s.putRecord(r)
	check(written(2), "t")
	s.Fault("kill", written(3), explains(9))
	s.put("a", 2, 3, 4)
	check(written(2), "t") // a duplicate is not new
	s.put("a", 2, 5, 6)
	if behind := s.Behind(written(2), "t", "u"); len(behind) > 0 {
		t.Errorf("behind: %v", behind)
	}
}

func texts(all []Violation) []string {
	var lines []string
	for i := range all {
		lines = append(lines, all[i].String())
	}
	return lines
}

// Whatever byte of a record is altered, it is noticed.
func TestAltered(t *testing.T) {
	alterations := map[string]func(r *Record){
		"key":            func(r *Record) { r.Key = []byte("b") },
		"null key":       func(r *Record) { r.Key = nil },
		"null value":     func(r *Record) { r.Value = nil },
		"header value":   func(r *Record) { r.Headers[0].Value = uuid.NewString() },
		"header key":     func(r *Record) { r.Headers[1].Key = "eventtype" },
		"header missing": func(r *Record) { r.Headers = r.Headers[:3] },
		"header added":   func(r *Record) { r.Headers = append(r.Headers, delivery.Header{Key: "x", Value: "y"}) },
		"header order":   func(r *Record) { slices.Reverse(r.Headers) },
		"cut":            func(r *Record) { r.Value = r.Value[:len(r.Value)/2] },
		"re-quoted":      func(r *Record) { r.Value = r.Value[1 : len(r.Value)-1] },
		"another event":  func(r *Record) { r.Value = scriptEvent("b", 1).Payload(200) },
		"another length of the transaction": func(r *Record) {
			e := scriptEvent("a", 2)
			e.Count++
			r.Value = e.Payload(200)
		},
		"another number": func(r *Record) {
			e := scriptEvent("a", 2)
			e.Seq = 4
			r.Value, r.Headers = e.Payload(200), e.Headers()
		},
	}
	for i := range scriptEvent("a", 2).Payload(200) {
		alterations["bit "+string(rune('A'+i))] = func(r *Record) { r.Value[i] ^= 1 << (i % 8) }
	}
	for name, alter := range alterations {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.put("a", 1, 1)
			r := s.next("a", 1, 2)
			alter(r)
			s.putRecord(r)
			got, _ := s.Violations()
			if len(got) == 0 || got[0].Kind != delivery.Altered || got[0].Record != r.Coordinates {
				t.Errorf("found %v", texts(got))
			}
		})
	}
}
