package sinktest

import (
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
	store, j := s.Store(t), newJournal(t)
	p := openStore(t, open(t, s, window, j), store, "a", j)
	for i := range 3 {
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
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 200, 7)
	r.drain()
	deadLetters, err := s.Broker(window).OpenDeadLetters(Context(t), destination, r.Journal.Logger())
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
			case want == nil || differs(want, &got.Record) != "":
				t.Errorf("a record at offset %d that was not sent so", got.Offset)
				return nil
			case got.Partition != span.Partition || got.Offset < next || got.Offset >= span.End || want.Seq < last[string(got.Key)]:
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
	const missing = "nobody-has-made-this"
	destination, j := s.Destination(t), newJournal(t)
	on := open(t, s, window, j)
	if err := on.CheckDestinations(Context(t), destination); err != nil {
		t.Errorf("a destination that exists: %v", err)
	}
	if err := on.CheckDestinations(Context(t), destination, missing); !errors.Is(err, sink.ErrMissing) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing destination: %v", err)
	}
	if _, err := s.Broker(window).OpenDeadLetters(Context(t), missing, j.Logger()); !errors.Is(err, sink.ErrMissing) {
		t.Errorf("dead letters of a missing destination: %v", err)
	}
	reader, err := s.Broker(window).OpenReader(j.Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	other := s.Destination(t)
	spans, err := reader.Spans(Context(t), destination, missing, other)
	if err != nil || len(spans) != 2 || len(spans[destination]) == 0 || len(spans[other]) == 0 {
		t.Errorf("Spans of two destinations and a missing one: %v, %v", spans, err)
	}
}
