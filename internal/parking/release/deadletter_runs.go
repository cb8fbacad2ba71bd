package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// maxRuns limits the memory of deadLetterRuns, to less than 1 MB.
const maxRuns = 8192

// deadLetterRuns are dead letters of one parking. They are read in the order of their places. Nearly all of them are in the
// topic in that order, so only runs are kept, and a run needs the same memory whatever its length is.
type deadLetterRuns struct {
	runs  []deadLetterRun
	found int // runs before this index are of an earlier pass, or sorted

	// If there were too many runs, those from the place bound on were left out.
	leftOut bool
	bound   encode.Place
}

// A deadLetterRun is dead letters in one partition whose places ascend with their offsets.
type deadLetterRun struct {
	deadLetterPlace // of the first one

	last        encode.Place
	end         int64 // offset of the last one
	deadLetters int
}

// clone returns a copy.
func (w *deadLetterRuns) clone() *deadLetterRuns {
	c := *w
	c.runs = slices.Clone(w.runs)
	return &c
}

// startPass is called before another pass over the topic adds dead letters.
func (w *deadLetterRuns) startPass() { w.found = len(w.runs) }

// add adds a dead letter. Those of a partition are added in the order of their offsets.
func (w *deadLetterRuns) add(l deadLetterPlace) {
	if w.leftOut && l.Compare(w.bound) >= 0 {
		return
	}
	if n := len(w.runs); n > w.found {
		if run := &w.runs[n-1]; run.partition == l.partition && l.Compare(run.last) >= 0 {
			run.last, run.end = l.Place, l.offset
			run.deadLetters++
			return
		}
	}
	w.runs = append(w.runs, deadLetterRun{deadLetterPlace: l, last: l.Place, end: l.offset, deadLetters: 1})
	if len(w.runs) == maxRuns {
		w.sort()
		w.leftOut, w.bound = true, w.runs[maxRuns/2].Place
		w.runs = w.runs[:maxRuns/2]
		w.startPass()
	}
}

// incomplete reports whether dead letters up to a place were left out.
func (w *deadLetterRuns) incomplete(end encode.Place) bool {
	return w.leftOut && w.bound.Compare(end) <= 0
}

// sort sorts the runs by the place of their first dead letter.
func (w *deadLetterRuns) sort() { slices.SortFunc(w.runs, compareRuns) }

func compareRuns(a, b deadLetterRun) int {
	return cmp.Or(a.Compare(b.Place), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
}

// read removes the dead letters up to the place end, except those from one on that was left out, and calls fn with each,
// in order. After an error, w must not be used.
func (w *deadLetterRuns) read(ctx context.Context, reader sink.DeadLetters, parking string, end encode.Place, fn func(deadLetterPlace, *encode.DeadLetter) error) error {
	w.sort()
	due := func(p encode.Place) bool { return p.Compare(end) <= 0 && (!w.leftOut || p.Compare(w.bound) < 0) }
	for len(w.runs) > 0 && due(w.runs[0].Place) {
		run := w.runs[0]
		w.runs = w.runs[1:]
		err := run.read(ctx, reader, parking, func(at deadLetterPlace, dead *encode.DeadLetter) error {
			if !due(at.Place) || len(w.runs) > 0 && at.Compare(w.runs[0].Place) > 0 {
				return errNotNext
			}
			return fn(at, dead)
		})
		if err != nil {
			return err
		}
		if run.deadLetters > 0 {
			i, _ := slices.BinarySearchFunc(w.runs, run, compareRuns)
			w.runs = slices.Insert(w.runs, i, run)
		}
	}
	return nil
}

// errNotNext: a dead letter of another run comes first, or the next one is not due.
var errNotNext = errors.New("another dead letter comes first")

// read calls fn with the dead letters of the run and removes them, up to one for which fn returns errNotNext.
func (r *deadLetterRun) read(ctx context.Context, reader sink.DeadLetters, parking string, fn func(deadLetterPlace, *encode.DeadLetter) error) error {
	offsets := sink.OffsetRange{Partition: r.partition, Begin: r.offset, End: r.end + 1}
	isFirst := true
	err := reader.Read(ctx, offsets, func(stored *sink.StoredRecord) error {
		l, ok := encode.ParseDeadLetter(&stored.Record)
		if !ok || l.Parked == nil || l.Parked.Parking != parking || l.Parked.Place.Compare(r.Place) < 0 {
			return nil // of another key, or sent before it was found
		}
		if isFirst && stored.Offset != r.offset {
			return r.expired()
		}
		isFirst = false
		r.deadLetterPlace = deadLetterPlace{l.Parked.Place, r.partition, stored.Offset}
		if err := fn(r.deadLetterPlace, l); err != nil {
			return err
		}
		r.deadLetters--
		return nil
	})
	switch {
	case errors.Is(err, errNotNext):
		return nil
	case err == nil && r.deadLetters > 0:
		return r.expired()
	}
	return err
}

func (r *deadLetterRun) expired() error {
	return fmt.Errorf("dead letters of the key in partition %d, from offset %d on, have just expired", r.partition, r.offset)
}
