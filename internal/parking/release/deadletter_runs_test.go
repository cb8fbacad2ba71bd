package release

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// madeDeadLetters is a dead-letter topic of some partitions, whose dead letters of one parking are made when they are read.
type madeDeadLetters struct {
	partitions [][]uint64 // the places; 0: a record of another key
	record     sink.StoredRecord
}

func newMadeDeadLetters(partitions ...[]uint64) *madeDeadLetters {
	dead := encode.DeadRecord("dead", encode.Origin{Slot: "s"}, &sink.Record{Topic: "orders", Partition: sink.AnyPartition, Key: []byte("k")}, "bad")
	return &madeDeadLetters{partitions: partitions, record: sink.StoredRecord{Record: *dead}}
}

func (m *madeDeadLetters) OffsetRanges(context.Context) ([]sink.OffsetRange, error) {
	var ranges []sink.OffsetRange
	for i, places := range m.partitions {
		ranges = append(ranges, sink.OffsetRange{Partition: int32(i), End: int64(len(places))})
	}
	return ranges, nil
}

func (m *madeDeadLetters) Read(_ context.Context, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	for i, place := range m.partitions[offsets.Partition][offsets.Begin:offsets.End] {
		parking := "this"
		if place == 0 {
			parking = "other"
		}
		stored := m.record
		stored.Partition, stored.Offset = offsets.Partition, offsets.Begin+int64(i)
		rec := stored.Record
		rec.Headers = slices.Clone(rec.Headers)
		stored.Record = *encode.Park(&rec, rec.Key, encode.Parked{Parking: parking, Place: encode.Place{Generation: 1, LSN: pglogrepl.LSN(place)}})
		if err := fn(&stored); err != nil {
			return err
		}
	}
	return nil
}

func (*madeDeadLetters) Close() error { return nil }

// findIn returns a release that has found the dead letters of a topic.
func findIn(t *testing.T, topic *madeDeadLetters) *releaseRun {
	t.Helper()
	r := &releaseRun{Releaser: new(Releaser), reader: topic, next: make(map[int32]int64)}
	r.parking.ID = "this"
	if err := r.find(t.Context(), readableTimeout); err != nil {
		t.Fatal(err)
	}
	return r
}

// A release reads the dead letters of a key in the order of their places, however they are distributed. What is not due
// stays.
func TestDeadLetterRunsAreReadInOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := random.IntN(60)
		parts := make([][]uint64, 1+random.IntN(3))
		for place := range n {
			p := random.IntN(len(parts))
			if random.IntN(4) == 0 {
				parts[p] = append(parts[p], 0)
			}
			at := max(0, len(parts[p])-random.IntN(4))
			parts[p] = slices.Insert(parts[p], at, uint64(place+1))
		}
		r := findIn(t, newMadeDeadLetters(parts...))
		var got []uint64
		for _, due := range []uint64{uint64(n / 3), uint64(n)} {
			err := r.waiting.read(t.Context(), r.reader, "this", encode.Place{Generation: 1, LSN: pglogrepl.LSN(due)}, func(at deadLetterPlace, l *encode.DeadLetter) error {
				if parts[at.partition][at.offset] != uint64(l.Parked.Place.LSN) {
					t.Errorf("seed %d: %d:%d has place %d, not %d", seed, at.partition, at.offset, parts[at.partition][at.offset], uint64(l.Parked.Place.LSN))
				}
				got = append(got, uint64(l.Parked.Place.LSN))
				return nil
			})
			if err != nil || len(got) != int(due) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Fatalf("seed %d: up to %d of %v: %v, %v", seed, due, parts, got, err)
			}
		}
	}
}

// The memory of a release does not grow with the number of dead letters. If they are in the worst order, it reads the topic
// several times.
func TestReleaseMemoryIsBounded(t *testing.T) {
	const n = 100_000
	ascending, descending := make([]uint64, n), make([]uint64, 3*maxRuns/2)
	for i := range ascending {
		ascending[i] = uint64(i + 1)
	}
	for i := range descending {
		descending[i] = uint64(len(descending) - i)
	}
	for name, topic := range map[string]*madeDeadLetters{"ascending": newMadeDeadLetters(ascending), "descending": newMadeDeadLetters(descending)} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := findIn(t, topic)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
				t.Errorf("the dead letters that were found need %d bytes", grown)
			}
			end := encode.Place{Generation: 1, LSN: pglogrepl.LSN(n)}
			for sent := 0; ; {
				err := r.waiting.read(t.Context(), r.reader, "this", end, func(at deadLetterPlace, _ *encode.DeadLetter) error {
					sent++
					r.parking.Released = at.Place
					if uint64(at.LSN) != uint64(sent) {
						return errors.New("out of order")
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if !r.waiting.incomplete(end) {
					if sent != len(topic.partitions[0]) {
						t.Errorf("%d were read", sent)
					}
					return
				}
				r.waiting = deadLetterRuns{}
				clear(r.next)
				if err := r.find(t.Context(), readableTimeout); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A release notices if dead letters that it has found are gone.
func TestDeadLetterRunsNoticeExpiredDeadLetters(t *testing.T) {
	for name, lost := range map[string]int{"first": 0, "in the middle": 2, "last": 4} {
		t.Run(name, func(t *testing.T) {
			topic := newMadeDeadLetters([]uint64{1, 2, 3, 4, 5})
			r := findIn(t, topic)
			topic.partitions[0][lost] = 0
			err := r.waiting.read(t.Context(), r.reader, "this", encode.Place{Generation: 1, LSN: 5}, func(deadLetterPlace, *encode.DeadLetter) error { return nil })
			if err == nil {
				t.Error("the missing dead letter is not noticed")
			}
		})
	}
}
