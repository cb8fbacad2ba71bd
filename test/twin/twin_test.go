package twin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// defaultSeeds is how many seeds a plain run tries.
const defaultSeeds = 60

// patience is how long the relay may take to deliver everything once nothing goes wrong any
// more. The longest single wait is a server's wal_sender_timeout.
const patience = 3 * time.Minute

// soon is how long it may take when everything is there and was there a moment ago.
const soon = 20 * time.Second

// maxShown is how many violations of a seed are printed: most follow from the first.
const maxShown = 3

// pgxCloses is how long pgconn may take, in a goroutine of its own, to close a connection on
// which something was interrupted.
const pgxCloses = 20 * time.Second

// TestTwin tries seeds. A violation prints its seed, and with one seed its history.
func TestTwin(t *testing.T) {
	if seed := environ(t, "OUTBOX_TEST_SEED", 0); seed != 0 {
		w := play(t, seed, nil)
		t.Logf("history:\n%s", w.history)
		return
	}
	var total struct {
		sync.Mutex
		rows, duplicates, runs, updates int
		failed                          bool
	}
	first := rand.Uint64N(1 << 40)
	seeds := environ(t, "OUTBOX_TEST_SEEDS", defaultSeeds)
	t.Run("seeds", func(t *testing.T) {
		const parts = 8
		for part := range uint64(parts) {
			t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
				t.Parallel()
				for seed := first + part; seed < first+seeds; seed += parts {
					w := play(t, seed, nil)
					total.Lock()
					total.rows += len(w.history.rows)
					total.duplicates += w.history.checker.Counts().Duplicates
					total.runs += int(w.runs.Load())
					total.updates += w.history.updates
					total.failed = total.failed || t.Failed()
					failed := total.failed
					total.Unlock()
					if failed {
						return
					}
				}
			})
		}
	})
	t.Logf("seeds from %d: %d rows, %d duplicates, %d runs of the relay, %d status updates judged",
		first, total.rows, total.duplicates, total.runs, total.updates)
}

func environ(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// play plays what a seed has drawn and reports violations. mutate changes the world first.
func play(t *testing.T, seed uint64, mutate func(*world)) *world {
	t.Helper()
	var w *world
	defer func() {
		if p := recover(); p != nil { // synctest's, of goroutines that wait for each other, or are left
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Fatalf("OUTBOX_TEST_SEED=%d: %v\n%s\n%s", seed, p, w.history, stacks)
		}
	}()
	stuck := time.AfterFunc(time.Minute, func() { // by the clock on the wall
		debug.SetTraceback("all")
		panic(fmt.Sprintf("OUTBOX_TEST_SEED=%d: virtual time stands still", seed))
	})
	defer stuck.Stop()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		if mutate != nil {
			mutate(w)
		}
		w.play()
	})
	if mutate == nil {
		for i, v := range w.history.violations {
			if i == maxShown {
				t.Errorf("OUTBOX_TEST_SEED=%d: and %d more", seed, len(w.history.violations)-maxShown)
				break
			}
			t.Errorf("OUTBOX_TEST_SEED=%d: %s", seed, v)
		}
	}
	return w
}

// play is a time of trouble, and then one of peace in which everything has to arrive.
func (w *world) play() {
	enemy := &nemesis{world: w, rng: rand.New(rand.NewPCG(w.seed, drawNemesis)), restarts: newTurn()}
	w.postgres.start()
	for range 1 + enemy.rng.IntN(2) {
		w.launch()
	}

	ctx, cancel := context.WithTimeout(w.Context(), time.Duration(2+enemy.rng.IntN(20))*time.Second)
	writing, stopWriting := context.WithCancel(w.Context())
	var writer sync.WaitGroup
	writer.Go(func() { w.write(writing) })
	enemy.run(ctx)
	cancel()
	stopWriting()
	writer.Wait()
	enemy.peace()
	// Whoever waits for an answer from the time of trouble cannot stop well, and whose connection was lost
	// in silence does not know yet.
	time.Sleep(longestHold + w.postgres.timeout/2)

	w.history.calmFrom(time.Now())
	w.arrive(patience)
	w.playScene(enemy.rng)
	w.rest()
	w.launch() // which finds nothing to repeat
	w.commitRow(topics[0])
	w.arrive(soon)
	w.rest()
	w.end()
}

// arrive waits until everything committed is stored and confirmed, but not longer than limit.
func (w *world) arrive(limit time.Duration) {
	for began := time.Now(); w.history.left() > 0 || w.postgres.confirmedLSN() < w.history.last(); {
		if time.Since(began) > limit {
			w.history.violated("%d rows have not arrived and %s is confirmed %s after the last trouble, %s",
				w.history.left(), w.postgres.confirmedLSN(), limit, w.history.lost())
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// end shuts the servers down and waits for everything to be over.
func (w *world) end() {
	w.postgres.crash()
	for _, n := range w.kafka.nodes {
		w.kafka.fail(n)
	}
	w.zombies.Wait()
	w.net.serving.Wait()
	time.Sleep(pgxCloses)
	w.history.note("over: %d runs", w.runs.Load())
}
