package position_test

import (
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// TestRecordStop: the record says why its owner has stopped, until the next ownership, and nothing else changes in it.
func TestRecordStop(t *testing.T) {
	store := &positiontest.Store{}
	stop := checkpoint.Stop{ExitCode: 14, Reason: "a row"}
	if err := positiontest.New(t, store).Recorder.RecordStop(t.Context(), stop); err != nil || store.Writes != 0 {
		t.Errorf("no owner: %v, %d writes", err, store.Writes)
	}
	first, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, first)
	before := store.Position(t)
	if err := first.Recorder.RecordStop(t.Context(), stop); err != nil {
		t.Fatal(err)
	}
	p := store.Position(t)
	if p.Stopped == nil || *p.Stopped != stop || p.EndLSN != before.EndLSN || p.Generation != before.Generation || p.Owner != before.Owner {
		t.Errorf("recorded %+v, before %+v", p, before)
	}
	second := positiontest.New(t, store)
	store.Allow = make(chan error, 1)
	store.Allow <- errors.New("no answer")
	if err := second.Starter.BeginOwnership(t.Context(), positiontest.Server(200)); err == nil {
		t.Fatal("the ownership has begun")
	}
	store.Allow = nil
	if err := second.Recorder.RecordStop(t.Context(), stop); err != nil || store.Position(t).Owner != p.Owner+1 {
		t.Errorf("%v: recorded %+v, although a record of the next ownership may be stored", err, store.Position(t))
	}
	positiontest.Started(t, store, positiontest.Server(200))
	if p := store.Position(t); p.Stopped != nil || p.EndLSN != 200 {
		t.Errorf("the next ownership has recorded %+v", p)
	}
	if err := first.Recorder.RecordStop(t.Context(), stop); !errors.Is(err, sink.ErrSuperseded) || store.Position(t).Stopped != nil {
		t.Errorf("superseded: %v, %+v", err, store.Position(t))
	}
}
