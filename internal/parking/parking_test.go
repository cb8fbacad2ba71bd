package parking

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func key(k string) Key { return Key{"orders", k} }

// Every record of a key from the first bad one on follows it, in the order of their rows. Records before it, and
// those of other keys and topics, do not.
func TestFollow(t *testing.T) {
	s := NewSet(10)
	s.StartOwnership(checkpoint.Position{Owner: 3}, checkpoint.Position{Generation: 1}, nil)
	if !s.Empty() {
		t.Error("a new set has keys")
	}
	deadLetter, ok := s.Park(key("a"), "bad", Row{100, 0})
	if !ok || deadLetter.Place != (encode.Place{Generation: 1, LSN: 100}) || s.Empty() {
		t.Fatalf("%+v, %v", deadLetter, ok)
	}
	for _, tc := range []struct {
		topic, key string
		at         Row
		follows    bool
	}{{"orders", "a", Row{99, 5}, false}, {"orders", "a", Row{100, 1}, true}, {"orders", "b", Row{101, 0}, false}, {"others", "a", Row{101, 0}, false}} {
		got, first, ok := s.Follow(tc.topic, []byte(tc.key), tc.at)
		if ok != tc.follows || ok && (got.Parking != deadLetter.Parking || got.Place != encode.Place{Generation: 1, LSN: tc.at.LSN, Index: tc.at.Index} || first != (Row{100, 0})) {
			t.Errorf("%+v: %+v, %v, %v", tc, got, first, ok)
		}
	}
	// Kafka rejects an earlier record of the key late.
	if earlier, ok := s.Park(key("a"), "rejected", Row{90, 1}); !ok || earlier.Parking != deadLetter.Parking || earlier.Place.Compare(deadLetter.Place) >= 0 {
		t.Errorf("%+v, %v", earlier, ok)
	}
	if _, first, ok := s.Follow("orders", []byte("a"), Row{99, 5}); !ok || first != (Row{90, 1}) {
		t.Errorf("behind the earlier one: %v, %v", first, ok)
	}
	if p := s.List()[0]; p.Records != 4 || p.Reason != "rejected" || s.Total() != 4 {
		t.Errorf("%+v, total %d", p, s.Total())
	}
}

// A relay that finds the same row bad again continues the parking of an earlier one. Rows that are copied again have other
// places, because they may come in another order.
func TestParkAgain(t *testing.T) {
	var deadLetters [2][2]encode.Parked
	for i := range deadLetters {
		s := NewSet(1)
		s.StartOwnership(checkpoint.Position{Owner: int64(3 + i)}, checkpoint.Position{Generation: 1}, nil)
		for j, lsn := range []pglogrepl.LSN{100, 200} {
			if j == 1 {
				s.StartCopy(lsn)
			}
			deadLetters[i][j], _ = s.Park(key("a"), "bad", Row{lsn, 0})
		}
	}
	if deadLetters[0][0] != deadLetters[1][0] || deadLetters[0][1].Place.Compare(deadLetters[1][1].Place) >= 0 {
		t.Errorf("%+v", deadLetters)
	}
}

// A set that is full parks no more keys, and still counts further records of those that it has.
func TestFullSet(t *testing.T) {
	s := NewSet(2)
	for i := range 3 {
		if _, ok := s.Park(key(fmt.Sprint(i)), "bad", Row{}); ok != (i < 2) {
			t.Errorf("key %d: %v", i, ok)
		}
	}
	if _, ok := s.Park(key("0"), "bad", Row{}); !ok || !s.Refused() {
		t.Error("a key that is parked is refused")
	}
	s = NewSet(MaxKeys)
	n := 0
	for ok := true; ok && n < MaxKeys; n++ {
		_, ok = s.Park(key(fmt.Sprint(n, strings.Repeat("x", 10_000))), "bad", Row{})
	}
	rec, _ := s.Record("")
	value, err := rec.Marshal()
	if err != nil || len(value) > maxBytes+10_000 || n < 30 {
		t.Errorf("%d long keys take %d bytes, %v", n, len(value), err)
	}
}

// What is stored is read again. A value under the key of another writer is rejected.
func TestRecord(t *testing.T) {
	s := NewSet(10)
	s.StartOwnership(checkpoint.Position{Owner: 3}, checkpoint.Position{Generation: 1}, nil)
	s.Park(key("a\x00\xff"), "bad", Row{100, 2})
	s.Park(key("b"), strings.Repeat("long", 100), Row{101, 0})
	id := s.List()[0].ID
	s.Progress(id, []encode.Place{{Generation: 1, LSN: 100, Index: 2}}, 1)
	s.Discard(id, Discarded{Row{100, 2}, "id", "request"}, Row{101, 0})
	s.Truncate(id, Row{101, 0}, "17")
	s.Finish(Result{Request: "r", Outcome: Stopped, Released: 3, Left: 1, Dropped: "row", Reason: "why", At: time.Now().UTC().Truncate(time.Second)})
	rec, version := s.Record("")
	value, err := rec.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(sink.ParkedKey, value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, *got.Record, cmpopts.IgnoreUnexported(Parking{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.Stored(version); s.Pending(true) {
		t.Error("the stored set is pending")
	}
	if _, err := Parse(uuid.NewString(), value); err == nil {
		t.Error("a set under another key")
	}
	req := Request{ID: uuid.NewString(), Action: Discard, Parking: id, Row: "0/64:2", FiledAt: time.Now().UTC()}
	if value, err = req.Marshal(); err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(req.ID, value); err != nil || *got.Request != req {
		t.Errorf("%+v, %v", got.Request, err)
	}
	for _, key := range []string{uuid.NewString(), sink.ParkedKey} {
		if _, err := Parse(key, value); err == nil {
			t.Errorf("a request under the key %s", key)
		}
	}
	later := strings.Replace(string(value), `"version":1`, `"version":2`, 1)
	if _, err := Parse(req.ID, []byte(later)); !errors.Is(err, checkpoint.ErrLaterVersion) {
		t.Errorf("a later version: %v", err)
	}
}

// The record that is stored when a key is unparked has the rows of it that were discarded, and so have later ones. The oldest are forgotten.
func TestDiscardedRowsOfUnparkedKeys(t *testing.T) {
	s := NewSet(1)
	var rec Record
	var ids []string
	for i := range keptUnparked + 1 {
		s.Park(key("a"), "bad", Row{100, i})
		id := s.List()[0].ID
		ids = append(ids, id)
		s.Discard(id, Discarded{Row: Row{100, i}, ID: fmt.Sprint(i)}, Row{})
		rec, _ = s.Record(id)
		s.Unpark(id)
	}
	value, err := rec.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(sink.ParkedKey, value)
	if err != nil {
		t.Fatal(err)
	}
	s.StartOwnership(checkpoint.Position{}, checkpoint.Position{}, got.Record)
	rec, _ = s.Record("")
	if diff := cmp.Diff(*got.Record, rec, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("of the next ownership (-want +got):\n%s", diff)
	}
	for i, want := range map[int]bool{0: false, 1: true, keptUnparked: true} {
		dead := &encode.DeadLetter{LSN: 100, Index: i, Parked: &encode.Parked{Parking: ids[i]}}
		if rec.HasDiscarded(dead, fmt.Sprint(i)) != want {
			t.Errorf("row %d is discarded: want %t", i, want)
		}
	}
}

func TestStartOwnership(t *testing.T) {
	s := NewSet(10)
	s.StartOwnership(checkpoint.Position{Owner: 3}, checkpoint.Position{Generation: 1}, nil)
	s.Park(key("before"), "bad", Row{100, 0})
	s.Park(key("open, before"), "bad", Row{200, 4})
	s.Park(key("open, after"), "bad", Row{200, 5})
	s.Park(key("after"), "bad", Row{300, 0})
	rec, _ := s.Record("")
	at := checkpoint.Position{Generation: 1, EndLSN: 150, Open: checkpoint.Prefix{CommitLSN: 200, Rows: 5}}
	lost := checkpoint.Position{Generation: 2, Refill: &checkpoint.Refill{Lost: at}}
	later := checkpoint.Position{Generation: 2}
	for name, tc := range map[string]struct {
		start, next checkpoint.Position
		want        string
	}{
		"same generation":             {at, later, "before, open, before"},
		"refill":                      {lost, later, "before, open, before"},
		"another generation":          {later, later, "before, open, before, open, after, after"},
		"no record of the generation": {checkpoint.Position{}, at, "before, open, before"},
	} {
		t.Run(name, func(t *testing.T) {
			next := NewSet(10)
			tc.start.Owner = 4
			dropped := next.StartOwnership(tc.start, tc.next, &rec)
			if len(dropped)+len(next.List()) != len(rec.Parkings) {
				t.Errorf("dropped are %+v", dropped)
			}
			var got []string
			for _, p := range next.List() {
				got = append(got, p.Key.Key)
				if _, _, ok := next.Follow(p.Topic, []byte(p.Key.Key), Row{}); !ok || !p.Confirmed {
					t.Errorf("the first record of %s does not follow", p.Key.Key)
				}
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("kept are %s, want %s", text, tc.want)
			}
			if !next.Pending(false) {
				t.Error("the set is not to be stored under the new ownership")
			}
		})
	}
}

// A refill that was started over reads the rows again, at other places. A key that it had parked stays parked, but not because of a
// row whose dead letter a release could ask for. The one of a refill that goes on is known.
func TestKeysOfARefillThatWasStartedOver(t *testing.T) {
	parked := Parking{ID: uuid.NewString(), Key: key("k"), First: Row{100, 7}, Bad: Row{100, 7}, Generation: 3}
	for _, tc := range []struct {
		generation int64 // of the position record
		first      Row
	}{{3, Row{100, 7}}, {4, Row{}}} {
		s := NewSet(1)
		start := checkpoint.Position{Generation: tc.generation, EndLSN: 101, Refill: &checkpoint.Refill{Lost: checkpoint.Position{Generation: 1}}}
		s.StartOwnership(start, start, &Record{Parkings: []Parking{parked}})
		if got := s.List(); len(got) != 1 || got[0].First != tc.first || got[0].Bad != parked.Bad {
			t.Errorf("generation %d: parked are %+v", tc.generation, got)
		}
	}
}

// A key is unparked only after the set without it is stored.
func TestUnpark(t *testing.T) {
	s := NewSet(10)
	s.Park(key("a"), "bad", Row{})
	s.Park(key("b"), "bad", Row{})
	id := s.List()[0].ID
	rec, _ := s.Record(id)
	if len(rec.Parkings) != 1 || rec.Parkings[0].Key != key("b") || len(s.List()) != 2 {
		t.Errorf("record %+v, set %+v", rec, s.List())
	}
	s.Unpark(id)
	if _, ok := s.Find(id); ok || len(s.List()) != 1 {
		t.Errorf("set %+v", s.List())
	}
	if size := s.size; size != s.keys[key("b")].size() {
		t.Errorf("size %d", size)
	}
}
