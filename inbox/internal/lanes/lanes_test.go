package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/lanes"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// Events of a key are handled in order and one at a time, and other keys continue meanwhile.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events, keys, workers = 500, 7, 4
		var mu sync.Mutex
		running, most := make(map[string]bool), 0
		got, want := make(map[string][]int64), make(map[string][]int64)
		g := lanes.New(t.Context(), workers, 50, func(_ context.Context, e inbox.Event) error {
			key := string(e.Key)
			mu.Lock()
			if running[key] {
				t.Errorf("two events of %q are handled at the same time", key)
			}
			running[key] = true
			most = max(most, len(running))
			got[key] = append(got[key], e.Offset)
			mu.Unlock()
			bubble.Sleep(rand.N(10 * time.Millisecond))
			mu.Lock()
			delete(running, key)
			mu.Unlock()
			return nil
		})
		defer g.Close()
		var done sync.WaitGroup
		for i := range int64(events) {
			key := fmt.Sprint(rand.N(keys))
			want[key] = append(want[key], i)
			done.Add(1)
			if err := g.Add(t.Context(), inbox.Event{Topic: "t", Key: []byte(key), Offset: i}, done.Done); err != nil {
				t.Fatal(err)
			}
		}
		done.Wait()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("offsets by key (-want +got):\n%s", diff)
		}
		if most != workers {
			t.Errorf("%d events were handled at the same time, want %d", most, workers)
		}
	})
}

// Events without a key have no order, so one that is slow delays none of the others.
func TestWithoutAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := lanes.New(t.Context(), 2, 10, func(_ context.Context, e inbox.Event) error {
			if e.Offset == 0 {
				<-release
			}
			return nil
		})
		defer g.Close()
		var done sync.WaitGroup
		for i := range int64(5) {
			f := func() {}
			if i > 0 {
				done.Add(1)
				f = done.Done
			}
			if err := g.Add(t.Context(), inbox.Event{Offset: i}, f); err != nil {
				t.Fatal(err)
			}
		}
		done.Wait()
		close(release)
	})
}

// After an error no further event is handled, and Add returns the error.
func TestError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errBroken := errors.New("broken")
		handled := 0
		g := lanes.New(t.Context(), 1, 2, func(_ context.Context, e inbox.Event) error {
			if e.Offset == 1 {
				return errBroken
			}
			handled++
			return nil
		})
		defer g.Close()
		var err error
		for i := int64(0); err == nil; i++ {
			err = g.Add(t.Context(), inbox.Event{Key: []byte("k"), Offset: i}, func() {})
		}
		<-g.Failed()
		if !errors.Is(err, errBroken) || !errors.Is(g.Err(), errBroken) || handled != 1 {
			t.Errorf("Add = %v, Err = %v after %d events", err, g.Err(), handled)
		}
	})
}

// Add blocks while the group is full. Close ends the context of a running event and waits for it. The event is not done.
func TestFullAndClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := lanes.New(t.Context(), 1, 1, func(ctx context.Context, _ inbox.Event) error {
			<-ctx.Done()
			bubble.Sleep(time.Second)
			return ctx.Err()
		})
		notDone := func() { t.Error("the event is done") }
		if err := g.Add(t.Context(), inbox.Event{}, notDone); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errFull)
		defer cancel()
		if err := g.Add(ctx, inbox.Event{}, notDone); !errors.Is(err, errFull) {
			t.Errorf("Add = %v", err)
		}
		began := time.Now()
		g.Close()
		if took := bubble.Since(began); took != time.Second || g.Err() != nil {
			t.Errorf("Close took %s; Err = %v", took, g.Err())
		}
	})
}

var errFull = errors.New("full")
