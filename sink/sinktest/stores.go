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
	p, err := on.OpenPositions(Context(t), store, name)
	if journaled(j, err) != nil {
		t.Fatalf("OpenPositions: %v", err)
	}
	return p
}

// writer is the writer id in tests that need only one.
const writer = "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b01"

func writePosition(t *testing.T, p sink.PositionStore, value string) {
	t.Helper()
	if err := p.Write(Context(t), writer, []byte(secret+value)); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

// wantPosition checks that want is the newest value. If want is empty, there must be no value.
func wantPosition(t *testing.T, p sink.PositionStore, want string) {
	t.Helper()
	values, err := p.Read(Context(t))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	got := ""
	if len(values) > 0 {
		got = strings.TrimPrefix(string(values[len(values)-1].Value), secret)
	}
	if got != want {
		t.Errorf("the newest of %d values is %q, want %q", len(values), got, want)
	}
}

func testPositions(t *testing.T, s Subject) {
	store, j := s.Store(t), newJournal(t)
	on := open(t, s, window, j)
	a, b := openStore(t, on, store, "a", j), openStore(t, on, store, "b", j)
	wantPosition(t, a, "")
	for i := range 5 {
		writePosition(t, a, fmt.Sprint("a", i))
		writePosition(t, b, fmt.Sprint("b", i))
	}
	wantPosition(t, a, "a4")
	wantPosition(t, b, "b4")
	another := openStore(t, open(t, s, window, j), store, "a", j)
	wantPosition(t, another, "a4")
	writePosition(t, another, "a5")
	wantPosition(t, a, "a5")
	wantPosition(t, b, "b4")
	testPositionReader(t, s, store, a)
}

// testPositionReader: a PositionReader reads what the store reads, and does not create a store.
func testPositionReader(t *testing.T, s Subject, store string, of sink.PositionStore) {
	t.Helper()
	opened, err := s.Broker(window).OpenReader(newJournal(t).Logger())
	if err != nil {
		if !limitsOf(s).NoReader {
			t.Error(err)
		}
		return
	}
	defer opened.Close()
	reader, ok := opened.(sink.PositionReader)
	if !ok {
		return
	}
	want, err := of.Read(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := reader.ReadPositions(Context(t), store, "a")
	if err != nil || !slices.EqualFunc(got, want, func(a, b sink.StoredValue) bool {
		return a.Writer == b.Writer && bytes.Equal(a.Value, b.Value) && a.Place == b.Place
	}) {
		t.Errorf("ReadPositions: %d values, want the %d of the store: %v", len(got), len(want), err)
	}
	for range 2 { // the second time, the first one has not created it
		if got, err := reader.ReadPositions(Context(t), store+"-missing", "a"); err != nil || len(got) > 0 {
			t.Errorf("ReadPositions of a missing store: %d values, %v", len(got), err)
		}
	}
}

// testPositionWriters: each writer has its own value. An open store sees that another store has removed
// a value.
func testPositionWriters(t *testing.T, s Subject) {
	store, j := s.Store(t), newJournal(t)
	a := openStore(t, open(t, s, window, j), store, "a", j)
	b := openStore(t, open(t, s, window, j), store, "a", j)
	other := openStore(t, open(t, s, window, j), store, "a/"+writer, j)
	const second = "0e0c6f6e-6a4e-4d3f-9a55-0f5a1f0a1b02"
	write := func(p sink.PositionStore, writer, value string) {
		t.Helper()
		var stored []byte
		if value != "" {
			stored = []byte(secret + value)
		}
		if err := p.Write(Context(t), writer, stored); err != nil {
			t.Fatalf("Write: %v", err)
		}
	}
	want := func(p sink.PositionStore, want ...string) {
		t.Helper()
		values, err := p.Read(Context(t))
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		var got []string
		for _, v := range values {
			got = append(got, v.Writer[max(0, len(v.Writer)-2):]+" "+strings.TrimPrefix(string(v.Value), secret))
		}
		if !slices.Equal(got, want) {
			t.Errorf("values %q, want %q", got, want)
		}
	}
	write(a, writer, "1")
	write(b, second, "2")
	write(other, writer, "of another name")
	want(a, "01 1", "02 2")
	write(a, writer, "3")
	want(b, "02 2", "01 3")
	write(b, writer, "")
	write(a, "", "old")
	want(a, "02 2", " old")
	want(b, "02 2", " old")
	want(other, "01 of another name")
	write(a, writer, "late")
	want(b, "02 2", " old", "01 late")
}

func testPositionFault(t *testing.T, s Subject, f Fault) {
	if limitsOf(s).LocalPositions {
		t.Skip("faults of the broker do not affect positions")
	}
	store, j := s.Store(t), newJournal(t)
	p := openStore(t, open(t, s, window, j), store, "a", j)
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
		writePosition(t, p, value)
		wantPosition(t, p, value)
	}
}

// testPositionGivenUp: a Write whose context was canceled does not overwrite the value of a later Write.
func testPositionGivenUp(t *testing.T, s Subject) {
	if limitsOf(s).LocalPositions {
		t.Skip("faults of the broker do not affect positions")
	}
	store, j := s.Store(t), newJournal(t)
	p := openStore(t, open(t, s, window, j), store, "a", j)
	writePosition(t, p, "first")
	_, heal := s.Hold().Begin(t)
	over := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, over)
	defer cancel()
	if err := journaled(j, p.Write(ctx, writer, []byte(secret+"given up"))); !errors.Is(err, over) {
		t.Errorf("Write: %v", err)
	}
	heal()
	writePosition(t, p, "last")
	wantPosition(t, p, "last")
}

func testDeadLetters(t *testing.T, s Subject) {
	destination, limits := s.Destination(t), limitsOf(s)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 200, 7)
	r.drain()
	deadLetters, err := s.Broker(window).OpenDeadLetters(Context(t), destination, r.Journal.Logger())
	if limits.NoDeadLetters {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("OpenDeadLetters: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer deadLetters.Close()
	spans, err := deadLetters.Spans(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for _, span := range spans {
		next, last := span.Begin, make(map[string]uint64)
		err := deadLetters.Read(Context(t), span, func(got *sink.StoredRecord) error {
			want := r.sentAs(&got.Record)
			switch {
			case want == nil || differs(want, &got.Record, limits) != "":
				t.Errorf("a record at offset %d that was not sent so", got.Offset)
				return nil
			case got.Partition != span.Partition || got.Offset < next || got.Offset >= span.End || want.Seq < last[string(got.Key)] && !limits.Unordered:
				t.Errorf("record %d is at %d of partition %d", want.Seq, got.Offset, got.Partition)
			}
			next, last[string(got.Key)] = got.Offset+1, want.Seq
			seen[want.Seq] = true
			return nil
		})
		if err != nil {
			t.Errorf("Read: %v", err)
		}
		if span.End == span.Begin {
			continue
		}
		enough := errors.New("enough")
		if err := deadLetters.Read(Context(t), span, func(*sink.StoredRecord) error { return enough }); !errors.Is(err, enough) {
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
	if !limits.NoMissing && !limits.NoDeadLetters {
		if _, err := s.Broker(window).OpenDeadLetters(Context(t), missing, j.Logger()); !errors.Is(err, sink.ErrMissing) {
			t.Errorf("dead letters of a missing destination: %v", err)
		}
	}
}

// testReader: a Reader reads what a Writer has written, and leaves out destinations that do not exist.
func testReader(t *testing.T, s Subject) {
	limits := limitsOf(s)
	destination, other := s.Destination(t), s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 50, 7)
	r.drain()
	reader, err := s.Broker(window).OpenReader(r.Journal.Logger())
	if limits.NoReader {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("OpenReader: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	missing := cmp.Or(limits.Missing, "nobody-has-made-this")
	spans, err := reader.Spans(Context(t), destination, missing, other)
	if err != nil || len(spans[destination]) == 0 || !limits.NoMissing && (len(spans) != 2 || len(spans[other]) == 0) {
		t.Errorf("Spans of two destinations and a missing one: %v, %v", spans, err)
	}
	seen := 0
	for _, span := range spans[destination] {
		err := reader.Read(Context(t), destination, span, func(got *sink.StoredRecord) error {
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
