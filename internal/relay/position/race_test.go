package position_test

import (
	"sync"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// The position writer and the releaser may store the set of parked keys at the same time, also the first one after a
// takeover, which removes requests. With -race, this test shows that they share nothing unprotected.
func TestParkedKeysAreStoredByTwo(t *testing.T) {
	store := &positiontest.Store{}
	w, _ := positiontest.Started(t, store, positiontest.Server(100), func(c *position.Config) { c.Parked = parking.NewSet(1) })
	keys := w.Parked
	for range 200 {
		keys.SetObsolete("earlier")
		begin := make(chan struct{})
		var both sync.WaitGroup
		for _, counts := range []bool{false, true} {
			both.Go(func() {
				<-begin
				if err := keys.Store(t.Context(), counts); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		both.Wait()
		if left := keys.Obsolete(); len(left) > 0 {
			t.Fatalf("to remove: %q", left)
		}
	}
}

// A session may prove that this process is the owner while the last position of the session before is written. With -race,
// this test shows that the two share nothing unprotected.
func TestRecordIsStoredByTwo(t *testing.T) {
	w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(100))
	for n := range pglogrepl.LSN(200) {
		positiontest.Deliver(tracker, 200+100*n)
		begin := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-begin
			positiontest.Write(t, w)
		})
		both.Go(func() {
			<-begin
			if err := w.Recorder.ProveOwner(t.Context()); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		both.Wait()
	}
}
