package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// began is the time of the first row.
var began = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// A scene is the rows of a table and the contents of a topic with two partitions.
type scene struct {
	rules      rules
	flags      uint8 // of all rows
	rows       []*sink.Record
	xids       []uint64
	begin      int64 // of all partitions
	hides      int   // 1 and 2: an open transaction is at the end of partition 0 or 1; 3: of the dead-letter topic
	topic      [2][]*sink.Record
	deadLetter []string // ids in the dead-letter topic
	elsewhere  []string // ids in it of another slot
	secondAt   int      // the first row of a second table; 0: there is one table

	unordered, compacted bool
}

// eventOf returns the record of event n of a key. The time follows from n.
func eventOf(key string, n int) *sink.Record {
	return &sink.Record{
		Topic: "t", Partition: sink.AnyPartition, Key: []byte(key), Value: fmt.Appendf(nil, "value %d", n),
		Headers:   []sink.Header{{Key: "id", Value: fmt.Appendf(nil, "%s/%d", key, n)}, {Key: "eventType", Value: []byte("T")}},
		Timestamp: began.Add(time.Duration(n) * time.Hour),
	}
}

// newScene returns n rows for each of two keys, all delivered: a in partition 0, b in partition 1.
func newScene(n int) *scene {
	s := &scene{rules: rules{CommitTimes: true, Missing: 10}, flags: due}
	for i := range n {
		for p, key := range []string{"a", "b"} {
			s.rows = append(s.rows, eventOf(key, i))
			s.xids = append(s.xids, uint64(100+i))
			s.topic[p] = append(s.topic[p], eventOf(key, i))
		}
	}
	return s
}

// judge runs the audit of the scene.
func (s *scene) judge() (Topic, []string) {
	l := newLedger(s.rules, int64(len(s.rows)))
	l.ordered = !s.unordered
	for i, rec := range s.rows {
		if s.secondAt > 0 && i == s.secondAt {
			l.endTable("outbox")
		}
		l.addRow(rec, s.xids[i], s.flags)
	}
	l.endTable("outbox")
	l.indexRows()
	l.topics[l.topic("t")].compacted, l.deadHidden = s.compacted, s.hides == 3
	for p, records := range s.topic {
		offsets := sink.OffsetRange{Partition: int32(p), Begin: s.begin, End: s.begin + int64(len(records))}
		if s.hides == p+1 {
			offsets.Hidden = offsets.End + 2
		}
		part := l.addPartition("t", offsets)
		for i, rec := range records {
			l.addRecord(part, &sink.StoredRecord{Record: *rec, Offset: s.begin + int64(i)})
		}
	}
	for _, id := range s.deadLetter {
		l.addDeadLetter([]byte(id), hasDeadLetter)
	}
	for _, id := range s.elsewhere {
		l.addDeadLetter([]byte(id), hasOtherDeadLetter)
	}
	findings := l.phantoms(l.judge())
	sortFindings(findings)
	var found []string
	for _, f := range findings {
		text := string(f.Kind)
		if f.Partition != nil {
			text += fmt.Sprintf(" [%d]@%d", *f.Partition, *f.Offset)
		}
		for _, rec := range s.rows {
			if id := rec.Headers[0].Value; f.id != 0 && f.id == l.hasher.ID(id) {
				text += " " + string(id)
			}
		}
		if strings.Contains(f.Detail, "; a dead letter of another slot") {
			text += ", elsewhere"
		}
		found = append(found, text)
	}
	return l.topics[l.byName["t"]].Topic, found
}

func TestAuditOfATopic(t *testing.T) {
	swap := func(records []*sink.Record, i, j int) { records[i], records[j] = records[j], records[i] }
	with := func(rec *sink.Record, change func(*sink.Record)) *sink.Record {
		c := *rec
		c.Headers = slices.Clone(rec.Headers)
		change(&c)
		return &c
	}
	header := func(rec *sink.Record, name, value string) *sink.Record {
		return with(rec, func(r *sink.Record) { r.Headers = append(r.Headers, sink.Header{Key: name, Value: []byte(value)}) })
	}
	for name, tc := range map[string]struct {
		change func(s *scene)
		want   Topic // all fields except Rows and Records
		found  []string
	}{
		"as it should be": {change: func(*scene) {}},
		"one row":         {change: func(s *scene) { *s = *newScene(1); s.rows, s.topic[1] = s.rows[:1], nil }},
		"missing": {
			change: func(s *scene) { s.topic[0] = slices.Delete(s.topic[0], 1, 3) },
			want:   Topic{Missing: 2}, found: []string{"missing a/1", "missing a/2"},
		},
		"hidden at the end": {change: func(s *scene) { s.topic[1], s.hides = s.topic[1][:4], 2 }, want: Topic{Hidden: 1}},
		"missing, and another partition is hidden": {
			change: func(s *scene) { s.topic[1], s.hides = s.topic[1][:4], 1 }, want: Topic{Missing: 1}, found: []string{"missing b/4"},
		},
		"missing before what is hidden": {
			change: func(s *scene) { s.topic[0], s.hides = slices.Delete(s.topic[0], 1, 2), 1 }, want: Topic{Missing: 1}, found: []string{"missing a/1"},
		},
		"a hidden dead letter": {change: func(s *scene) { s.topic[0], s.hides = slices.Delete(s.topic[0], 1, 2), 3 }, want: Topic{Hidden: 1}},
		"missing at the end":   {change: func(s *scene) { s.topic[1] = s.topic[1][:4] }, want: Topic{Missing: 1}, found: []string{"missing b/4"}},
		"missing from a key":   {change: func(s *scene) { s.topic[1] = nil }, want: Topic{Missing: 5}, found: []string{"missing b/0", "missing b/1", "missing b/2", "missing b/3", "missing b/4"}},
		"not confirmed":        {change: func(s *scene) { s.flags, s.topic[1] = 0, s.topic[1][:3] }, want: Topic{Unconfirmed: 2}},
		"duplicate":            {change: func(s *scene) { s.topic[0] = append(s.topic[0], s.topic[0][4]) }, want: Topic{Duplicate: 1}, found: []string{"duplicate [0]@5 a/4"}},
		"an older one comes last": {
			change: func(s *scene) { s.topic[0] = append(s.topic[0], s.topic[0][1]) },
			want:   Topic{Duplicate: 1, OutOfOrder: 1}, found: []string{"duplicate [0]@5 a/1", "out-of-order [0]@5 a/1"},
		},
		"a batch again": {
			change: func(s *scene) { s.topic[0] = append(s.topic[0], s.topic[0][3:]...) },
			want:   Topic{Duplicate: 2}, found: []string{"duplicate [0]@5 a/3", "duplicate [0]@6 a/4"},
		},
		"swapped": {change: func(s *scene) { swap(s.topic[0], 1, 2) }, want: Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@1 a/1"}},
		"swapped within a transaction": {
			change: func(s *scene) {
				s.xids[2], s.topic[0][1].Timestamp = s.xids[4], s.topic[0][2].Timestamp
				swap(s.topic[0], 1, 2)
			},
			want: Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@1 a/1"},
		},
		"another partition": {
			change: func(s *scene) { s.topic[1], s.topic[0] = append(s.topic[1], s.topic[0][4]), s.topic[0][:4] },
			want:   Topic{OutOfOrder: 1}, found: []string{"out-of-order [1]@5 a/4"},
		},
		"transactions that committed in the other order": {
			change: func(s *scene) {
				swap(s.topic[0], 1, 2)
				s.topic[0][1].Timestamp, s.topic[0][2].Timestamp = s.topic[0][2].Timestamp, s.topic[0][1].Timestamp
			},
			want: Topic{Concurrent: 1},
		},
		"the same, and positions tell": {
			change: func(s *scene) {
				swap(s.topic[0], 1, 2)
				s.rules.CommitTimes = false
				for i, rec := range s.topic[0] {
					s.topic[0][i] = header(rec, "lsn", fmt.Sprintf("1/%X:0", i+1))
				}
			},
			want: Topic{Concurrent: 1},
		},
		"the same, and nothing tells": {
			change: func(s *scene) { swap(s.topic[0], 1, 2); s.rules.CommitTimes = false },
			want:   Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@1 a/1"},
		},
		"late by the commits as well, which have another order": {
			change: func(s *scene) {
				s.topic[0][2].Timestamp, s.topic[0][3].Timestamp = s.topic[0][3].Timestamp, s.topic[0][2].Timestamp
				swap(s.topic[0], 3, 4)
			},
			want: Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@3 a/3"},
		},
		"the second of two tables came first": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes = 6, false
				s.topic[0] = slices.Concat(s.topic[0][3:], s.topic[0][:3])
			},
		},
		"the same, and swapped within a table": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes = 6, false
				s.topic[0] = slices.Concat(s.topic[0][3:], s.topic[0][:3])
				swap(s.topic[0], 3, 4)
			},
			want: Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@3 a/1"},
		},
		"the second table is in another partition": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes = 6, false
				s.topic[0], s.topic[1] = slices.Clone(s.topic[0][3:]), append(s.topic[1], s.topic[0][:3]...)
			},
			want: Topic{OutOfOrder: 6}, found: []string{
				"out-of-order [0]@0 a/0", "out-of-order [0]@0 a/1", "out-of-order [0]@0 a/2",
				"out-of-order [1]@5 a/0", "out-of-order [1]@6 a/1", "out-of-order [1]@7 a/2",
			},
		},
		"expired, and another table has a record": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes = 4, false
				s.rows, s.xids = slices.Concat(s.rows[6:], s.rows[:6]), slices.Concat(s.xids[6:], s.xids[:6])
				s.begin, s.topic[0] = 7, s.topic[0][3:]
			},
			want: Topic{Expired: 3},
		},
		"hidden, and another table has a record": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes = 2, false
				s.topic[0], s.hides = slices.Clone(s.topic[0][1:]), 1
			},
			want: Topic{Hidden: 1},
		},
		"compacted, and another table has the last record": {
			change: func(s *scene) {
				s.secondAt, s.rules.CommitTimes, s.compacted = 2, false, true
				s.topic[0] = s.topic[0][:1]
			},
			want: Topic{Expired: 4},
		},
		"swapped, no order in the table": {
			change: func(s *scene) { swap(s.topic[0], 1, 2); s.unordered = true },
			want:   Topic{OutOfOrder: 1}, found: []string{"out-of-order [0]@1 a/1"},
		},
		"nothing has an order": {change: func(s *scene) { swap(s.topic[0], 1, 2); s.unordered, s.rules.CommitTimes = true, false }},
		"no key, no order": {
			change: func(s *scene) {
				for _, rec := range slices.Concat(s.rows, s.topic[0], s.topic[1]) {
					rec.Key = nil
				}
				swap(s.topic[0], 1, 2)
			},
		},
		"value": {
			change: func(s *scene) { s.topic[0][1] = with(s.topic[0][1], func(r *sink.Record) { r.Value = []byte("x") }) },
			want:   Topic{Altered: 1}, found: []string{"altered [0]@1 a/1"},
		},
		"a tombstone is not empty": {
			change: func(s *scene) { s.rows[0].Value, s.topic[0][0].Value = nil, []byte{} },
			want:   Topic{Altered: 1}, found: []string{"altered [0]@0 a/0"},
		},
		"key": {
			change: func(s *scene) { s.topic[0][1] = with(s.topic[0][1], func(r *sink.Record) { r.Key = []byte("b") }) },
			want:   Topic{Altered: 1}, found: []string{"altered [0]@1 a/1"},
		},
		"header": {
			change: func(s *scene) { s.topic[0][1] = header(s.topic[0][1], "more", "x") },
			want:   Topic{Altered: 1}, found: []string{"altered [0]@1 a/1"},
		},
		"altered, and right": {
			change: func(s *scene) { s.topic[0] = slices.Insert(s.topic[0], 1, header(s.topic[0][1], "more", "x")) },
			want:   Topic{Altered: 1}, found: []string{"altered [0]@1 a/1"},
		},
		"headers of the delivery": {
			change: func(s *scene) {
				for _, name := range []string{"lsn", "traceparent", "__debezium.context.runId"} {
					s.topic[0][1] = header(s.topic[0][1], name, "1/1")
				}
			},
		},
		"phantom": {
			change: func(s *scene) { s.topic[0] = append(s.topic[0], eventOf("z", 3)) },
			want:   Topic{Phantom: 1}, found: []string{"phantom [0]@5"},
		},
		"no id": {
			change: func(s *scene) {
				s.topic[0] = append(s.topic[0], with(eventOf("z", 3), func(r *sink.Record) { r.Headers = nil }))
			},
			want: Topic{Phantom: 1}, found: []string{"phantom [0]@5"},
		},
		"pruned rows": {change: func(s *scene) { s.rows, s.xids = s.rows[4:], s.xids[4:] }, want: Topic{NoRow: 4}},
		"pruned rows, says the caller": {
			change: func(s *scene) {
				s.rules.PrunedBefore = began.Add(4 * time.Hour)
				s.rows, s.xids = slices.Delete(s.rows, 2, 3), slices.Delete(s.xids, 2, 3)
			},
			want: Topic{NoRow: 1},
		},
		"rows of another time": {
			change: func(s *scene) {
				s.rules.Since, s.rules.Until = began.Add(time.Hour), began.Add(2*time.Hour)
				s.rows, s.xids = s.rows[2:4], s.xids[2:4]
			},
			want: Topic{NoRow: 8},
		},
		"expired": {
			change: func(s *scene) { s.begin, s.topic[0], s.topic[1] = 7, s.topic[0][2:], s.topic[1][1:] },
			want:   Topic{Expired: 3},
		},
		"all expired":         {change: func(s *scene) { s.begin, s.topic[0], s.topic[1] = 7, nil, nil }, want: Topic{Expired: 10}},
		"a partition expired": {change: func(s *scene) { s.begin, s.topic[0] = 7, nil }, want: Topic{Expired: 5}},
		"missing behind what expired": {
			change: func(s *scene) { s.begin, s.topic[0] = 7, slices.Delete(s.topic[0][2:], 1, 2) },
			want:   Topic{Expired: 2, Missing: 1}, found: []string{"missing a/3"},
		},
		"compacted": {
			change: func(s *scene) { s.compacted, s.topic[0], s.topic[1] = true, s.topic[0][4:], s.topic[1][3:4] },
			want:   Topic{Expired: 7, Missing: 1}, found: []string{"missing b/4"},
		},
		"dead letter": {
			change: func(s *scene) { s.topic[0], s.deadLetter = slices.Delete(s.topic[0], 1, 2), []string{"a/1", "z/1"} },
			want:   Topic{DeadLetters: 1, Unsent: 1},
		},
		"dead letter of another slot": {
			change: func(s *scene) { s.topic[0], s.elsewhere = slices.Delete(s.topic[0], 1, 2), []string{"a/1", "b/1"} },
			want:   Topic{Missing: 1}, found: []string{"missing a/1, elsewhere"},
		},
		"dead letter of a delivered row": {change: func(s *scene) { s.deadLetter = []string{"a/1"} }, want: Topic{DeadLetters: 1}},
		"resent dead letter": {
			change: func(s *scene) {
				s.topic[0], s.deadLetter = append(slices.Delete(s.topic[0], 1, 2), header(eventOf("a", 1), "resent", "true")), []string{"a/1"}
			},
			want: Topic{DeadLetters: 1, Resent: 1},
		},
		"dead letter resent with another value": {
			change: func(s *scene) {
				resent := header(with(eventOf("a", 1), func(r *sink.Record) { r.Value = nil }), "resent", "true")
				s.topic[0], s.deadLetter = append(slices.Delete(s.topic[0], 1, 2), resent), []string{"a/1"}
			},
			want: Topic{DeadLetters: 1, Altered: 1}, found: []string{"altered [0]@4 a/1"},
		},
		"replayed": {
			change: func(s *scene) { s.topic[0] = append(s.topic[0], header(s.topic[0][1], "replayed", "true")) },
			want:   Topic{Resent: 1},
		},
		"delivered by replay": {
			change: func(s *scene) {
				s.topic[0] = append(slices.Delete(s.topic[0], 1, 2), header(eventOf("a", 1), "replayed", "true"))
			},
			want: Topic{Resent: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(5)
			tc.change(s)
			got, found := s.judge()
			tc.want.Name, tc.want.Rows, tc.want.Records = "t", len(s.rows), len(s.topic[0])+len(s.topic[1])
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.found, found); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// The limit of the listed missing rows is the caller's, also for those of one key.
func TestListedMissing(t *testing.T) {
	for limit, want := range map[int]int{0: 0, 3: 3, 1000: 150} {
		s := newScene(150)
		s.rules.Missing, s.topic[1] = limit, nil
		if got, found := s.judge(); got.Missing != 150 || len(found) != want {
			t.Errorf("at most %d: %d of %d are listed", limit, len(found), got.Missing)
		}
	}
}
