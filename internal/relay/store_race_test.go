package relay

import (
	"sync"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/parking"
)

// The position writer and the releaser may store the set of parked keys at the same time, also the first one after a
// takeover, which removes requests. With -race, this test shows that they share nothing unprotected.
func TestParkedKeysAreStoredByTwo(t *testing.T) {
	store := &scriptedStore{}
	w, _ := startedWriter(t, store, server(100))
	w.parked.set = parking.NewSet(1)
	for range 200 {
		w.parked.obsolete = []string{"earlier"}
		begin := make(chan struct{})
		var both sync.WaitGroup
		for _, counts := range []bool{false, true} {
			both.Go(func() {
				<-begin
				if err := w.storeParked(t.Context(), counts); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		both.Wait()
		if left := w.parked.obsolete; len(left) > 0 {
			t.Fatalf("to remove: %q", left)
		}
	}
}

// A session may prove that this process is the owner while the last position of the session before is written. With -race,
// this test shows that the two share nothing unprotected.
func TestRecordIsStoredByTwo(t *testing.T) {
	w, tracker := startedWriter(t, &scriptedStore{}, server(100))
	for n := range pglogrepl.LSN(200) {
		deliver(tracker, 200+100*n)
		begin := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-begin
			write(t, w)
		})
		both.Go(func() {
			<-begin
			if err := w.proveOwner(t.Context()); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		both.Wait()
	}
}
