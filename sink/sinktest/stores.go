package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

func openStore(t *testing.T, on sink.Sink, store, name string, j *Journal) sink.PositionStore {
	t.Helper()
	p, err := sink.OpenPositions(Context(t), on, store, name)
	if journaled(j, err) != nil {
		t.Fatalf("OpenPositions: %v", err)
	}
	return p
}

func own(t *testing.T, p sink.PositionStore) sink.Owner {
	t.Helper()
	o, err := p.Own(Context(t))
	if err != nil {
		t.Fatalf("Own: %v", err)
	}
	return o
}

func writePosition(t *testing.T, o sink.Owner, value string) {
	t.Helper()
	if err := o.Write(Context(t), sink.PositionKey, []byte(secret+value)); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

// wantPosition checks that want is the position. If want is empty, there must be no value.
func wantPosition(t *testing.T, p sink.PositionStore, want string) {
	t.Helper()
	if want != "" {
		want = sink.PositionKey + " " + want
	}
	wantValues(t, p, want)
}

// wantValues checks the keys and values of a store, in their order. An empty one is none.
func wantValues(t *testing.T, p sink.PositionStore, want ...string) {
	t.Helper()
	values, err := p.Read(Context(t))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	var got []string
	for _, v := range values {
		if v.Other != "" {
			continue
		}
		got = append(got, v.Key+" "+strings.TrimPrefix(string(v.Value), secret))
	}
	want = slices.DeleteFunc(want, func(v string) bool { return v == "" })
	if !slices.Equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
}

func testPositions(t *testing.T, s Storing) {
	store, j := s.Store(t), newJournal(t)
	on := open(t, s, window, j)
	a, b := openStore(t, on, store, "a", j), openStore(t, on, store, "b", j)
	wantPosition(t, a, "")
	ownerA, ownerB := own(t, a), own(t, b)
	wantPosition(t, a, "")
	for i := range 5 {
		writePosition(t, ownerA, fmt.Sprint("a", i))
		writePosition(t, ownerB, fmt.Sprint("b", i))
	}
	wantPosition(t, a, "a4")
	wantPosition(t, b, "b4")
	another := openStore(t, open(t, s, window, j), store, "a", j)
	wantPosition(t, another, "a4")
	successor := own(t, another)
	wantPosition(t, another, "a4")
	writePosition(t, successor, "a5")
	wantPosition(t, a, "a5")
	wantPosition(t, b, "b4")
	testPositionReader(t, s, store, a)

	others, err := openStore(t, on, store, "c", j).Read(Context(t))
	if err != nil || len(others) != 2 {
		t.Fatalf("without a position: %+v, %v", others, err)
	}
	for i, want := range []string{"a a5", "b b4"} {
		if v := others[i]; v.Key != sink.PositionKey || v.Other+" "+strings.TrimPrefix(string(v.Value), secret) != want {
			t.Errorf("position of another name: %+v, want %s", v, want)
		}
	}
}

// testOwners: an owner cannot write any more when there is a newer one, of another process or of the same.
func testOwners(t *testing.T, s Storing) {
	store, j := s.Store(t), newJournal(t)
	a, b := openStore(t, open(t, s, window, j), store, "a", j), openStore(t, open(t, s, window, j), store, "a", j)
	superseded := func(o sink.Owner) {
		t.Helper()
		for _, key := range []string{sink.PositionKey, sink.ParkedKey} {
			if err := journaled(j, o.Write(Context(t), key, []byte(secret+"late"))); !errors.Is(err, sink.ErrSuperseded) {
				t.Errorf("Write of an earlier owner: %v", err)
			}
		}
	}
	first := own(t, a)
	writePosition(t, first, "1")
	second := own(t, b)
	superseded(first) // also before the newer one has written
	wantPosition(t, b, "1")
	writePosition(t, second, "2")
	superseded(first)
	wantPosition(t, a, "2")
	third := own(t, b)
	writePosition(t, third, "3")
	superseded(second)
	fourth := own(t, a)
	wantPosition(t, a, "3")
	writePosition(t, fourth, "4")
	superseded(third)
	wantPosition(t, b, "4")
}

// testNoPositions: a broker without positions has neither a store nor what reads one.
func testNoPositions(t *testing.T, s Subject) {
	j := newJournal(t)
	if _, err := sink.OpenPositions(Context(t), open(t, s, window, j), "positions", "a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("OpenPositions: %v", err)
	}
	if broker, ok := s.Broker(window).(sink.ReaderOpener); ok {
		reader, err := broker.OpenReader(j.Logger())
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if _, ok := reader.(sink.PositionReader); ok {
			t.Error("the Reader is a PositionReader")
		}
	}
}

// testPositionReader: a PositionReader reads what the store reads, and does not create a store.
func testPositionReader(t *testing.T, s Subject, store string, of sink.PositionStore) {
	t.Helper()
	broker, ok := s.Broker(window).(sink.ReaderOpener)
	if !ok {
		return
	}
	opened, err := broker.OpenReader(newJournal(t).Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	reader, ok := opened.(sink.PositionReader)
	if !ok {
		t.Fatal("the broker stores positions, and its Reader is no PositionReader")
	}
	want, err := of.Read(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := reader.ReadPositions(Context(t), store, "a")
	if err != nil || !slices.EqualFunc(got, want, func(a, b sink.StoredValue) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Place == b.Place && a.Other == b.Other
	}) {
		t.Errorf("ReadPositions: %d values, want the %d of the store: %v", len(got), len(want), err)
	}
	for range 2 { // the second time, the first one has not created it
		if got, err := reader.ReadPositions(Context(t), store+"-missing", "a"); err != nil || len(got) > 0 {
			t.Errorf("ReadPositions of a missing store: %d values, %v", len(got), err)
		}
	}
}

// testPositionKeys: each key has its own value. An open store sees what another store has removed. Anybody may post.
func testPositionKeys(t *testing.T, s Storing) {
	store, j := s.Store(t), newJournal(t)
	a := openStore(t, open(t, s, window, j), store, "a", j)
	b := openStore(t, open(t, s, window, j), store, "a", j)
	other := openStore(t, open(t, s, window, j), store, "a.b", j)
	const first, second = "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b01", "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b02"
	post := func(p sink.PositionStore, key, value string) {
		t.Helper()
		var stored []byte
		if value != "" {
			stored = []byte(secret + value)
		}
		if err := p.Post(Context(t), key, stored); err != nil {
			t.Fatalf("Post: %v", err)
		}
	}
	owner := own(t, a)
	post(a, first, "1")
	post(b, second, "2")
	post(other, first, "of another name")
	wantValues(t, a, first+" 1", second+" 2")
	post(a, first, "3")
	wantValues(t, b, second+" 2", first+" 3")
	writePosition(t, owner, "4") // the others have not become owners
	if err := owner.Write(Context(t), sink.ParkedKey, []byte(secret+"5")); err != nil {
		t.Errorf("Write: %v", err)
	}
	post(b, first, "")
	wantValues(t, a, second+" 2", "position 4", "parked 5")
	wantValues(t, b, second+" 2", "position 4", "parked 5")
	if err := owner.Write(Context(t), sink.ParkedKey, nil); err != nil {
		t.Errorf("Write: %v", err)
	}
	wantValues(t, b, second+" 2", "position 4")
	wantValues(t, other, first+" of another name")
	post(a, first, "late")
	wantValues(t, b, second+" 2", "position 4", first+" late")
}

func testPositionFault(t *testing.T, s Storing, f Fault) {
	store, j := s.Store(t), newJournal(t)
	p := openStore(t, open(t, s, window, j), store, "a", j)
	o := own(t, p)
	for i := range f.rounds() {
		met, heal := f.Begin(t)
		go func() { // ends the fault while the Write below retries
			select {
			case <-met:
			case <-t.Context().Done():
			}
			heal()
		}()
		value := fmt.Sprint("value ", i)
		writePosition(t, o, value)
		wantPosition(t, p, value)
	}
}

// testPositionGivenUp: a Write whose context was canceled does not overwrite the value of a later Write.
func testPositionGivenUp(t *testing.T, s Storing) {
	store, j := s.Store(t), newJournal(t)
	p := openStore(t, open(t, s, window, j), store, "a", j)
	o := own(t, p)
	writePosition(t, o, "first")
	_, heal := s.Hold().Begin(t)
	over := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, over)
	defer cancel()
	if err := journaled(j, o.Write(ctx, sink.PositionKey, []byte(secret+"given up"))); !errors.Is(err, over) {
		t.Errorf("Write: %v", err)
	}
	heal()
	writePosition(t, o, "last")
	wantPosition(t, p, "last")
}

// readableBroker returns the broker of s. It skips the test if its records cannot be read back, and tests that this is said.
func readableBroker(t *testing.T, s Subject) sink.ReaderOpener {
	t.Helper()
	broker := s.Broker(window)
	if readable, ok := broker.(sink.ReaderOpener); ok {
		return readable
	}
	if _, err := sink.OpenReader(broker, newJournal(t).Logger()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("OpenReader: %v", err)
	}
	if _, err := sink.OpenDeadLetters(Context(t), broker, "dead", newJournal(t).Logger()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("OpenDeadLetters: %v", err)
	}
	t.Skip("the broker cannot be read back")
	return nil
}

func testDeadLetters(t *testing.T, s Subject) {
	broker := readableBroker(t, s)
	destination, limits := s.Destination(t), limitsOf(s)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 200, 7)
	r.drain()
	deadLetters, err := broker.OpenDeadLetters(Context(t), destination, r.Journal.Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer deadLetters.Close()
	ranges, err := deadLetters.OffsetRanges(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for _, offsets := range ranges {
		next, last := offsets.Begin, make(map[string]uint64)
		err := deadLetters.Read(Context(t), offsets, func(got *sink.StoredRecord) error {
			want := r.sentAs(&got.Record)
			switch {
			case want == nil || differs(want, &got.Record, limits) != "":
				t.Errorf("a record at offset %d that was not sent so", got.Offset)
				return nil
			case got.Partition != offsets.Partition || got.Offset < next || got.Offset >= offsets.End || want.Seq < last[string(got.Key)] && !limits.Unordered:
				t.Errorf("record %d is at %d of partition %d", want.Seq, got.Offset, got.Partition)
			}
			next, last[string(got.Key)] = got.Offset+1, want.Seq
			seen[want.Seq] = true
			return nil
		})
		if err != nil {
			t.Errorf("Read: %v", err)
		}
		if offsets.End == offsets.Begin {
			continue
		}
		enough := errors.New("enough")
		if err := deadLetters.Read(Context(t), offsets, func(*sink.StoredRecord) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("Read with an error of its caller: %v", err)
		}
	}
	if len(seen) != len(r.sent) {
		t.Errorf("read %d of %d records", len(seen), len(r.sent))
	}
}

func testMissing(t *testing.T, s Subject) {
	limits := limitsOf(s)
	missing := cmp.Or(limits.Missing, "nobody-has-made-this")
	destination, j := s.Destination(t), newJournal(t)
	on := open(t, s, window, j)
	if err := on.CheckDestinations(Context(t), destination); err != nil {
		t.Errorf("a destination that exists: %v", err)
	}
	err := on.CheckDestinations(Context(t), destination, missing)
	switch {
	case limits.NoMissing && err != nil:
		t.Errorf("a destination that nobody has used: %v", err)
	case !limits.NoMissing && (!errors.Is(err, sink.ErrMissing) || !strings.Contains(err.Error(), missing)):
		t.Errorf("a missing destination: %v", err)
	}
	if broker, ok := s.Broker(window).(sink.ReaderOpener); ok && !limits.NoMissing {
		if _, err := broker.OpenDeadLetters(Context(t), missing, j.Logger()); !errors.Is(err, sink.ErrMissing) {
			t.Errorf("dead letters of a missing destination: %v", err)
		}
	}
}

// testReader: a Reader reads what a Writer has written, and leaves out destinations that do not exist.
func testReader(t *testing.T, s Subject) {
	broker, limits := readableBroker(t, s), limitsOf(s)
	destination, other := s.Destination(t), s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 50, 7)
	r.drain()
	reader, err := broker.OpenReader(r.Journal.Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	missing := cmp.Or(limits.Missing, "nobody-has-made-this")
	ranges, err := reader.OffsetRanges(Context(t), destination, missing, other)
	if err != nil || len(ranges[destination]) == 0 || !limits.NoMissing && (len(ranges) != 2 || len(ranges[other]) == 0) {
		t.Errorf("Spans of two destinations and a missing one: %v, %v", ranges, err)
	}
	seen := 0
	for _, offsets := range ranges[destination] {
		err := reader.Read(Context(t), destination, offsets, func(got *sink.StoredRecord) error {
			if want := r.sentAs(&got.Record); want == nil || differs(want, &got.Record, limits) != "" {
				t.Errorf("a record at offset %d that was not sent so", got.Offset)
			}
			seen++
			return nil
		})
		if err != nil {
			t.Errorf("Read: %v", err)
		}
	}
	if seen != len(r.sent) {
		t.Errorf("read %d of %d records", seen, len(r.sent))
	}
}
