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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// defaultSeeds and fullSeeds are the numbers of seeds of an ordinary and of a full run if OUTBOX_TEST_SEEDS is not set.
// Over a queue, there are laneShare times less.
const (
	defaultSeeds = 8
	fullSeeds    = 60
	laneShare    = 3
)

// startup is the time in which a relay that prepares a refill notices that a connection is lost: startup_timeout.
const startup = 30 * time.Second

// patience is the time in which the relay must deliver everything after all faults have ended. The
// longest single wait is a server's wal_sender_timeout.
const patience = 3 * time.Minute

// soon is the time in which the relay must deliver everything if all servers are healthy and the
// relay is connected to them.
const soon = 20 * time.Second

// maxShown is the maximum number of violations per seed in the output. Most violations result from
// the first.
const maxShown = 3

// pgxCloses is the time that pgconn may take, in its own goroutine, to close a connection after
// an interrupted operation.
const pgxCloses = 20 * time.Second

// The relay keeps its guarantees for each seed; a full run, and one with OUTBOX_TEST_SEEDS, draws
// the seeds. The test logs the seed of each violation and the history of the first, because the schedule
// of goroutines decides too. If OUTBOX_TEST_SEED is set, it runs this seed only and logs its history.
func TestTwin(t *testing.T) { playSeeds(t, newWorld, 1) }

// The same, over a broker that package lane writes to. It acknowledges each record on its own, shuts out no earlier owner, and stores
// a record again that is sent again.
func TestTwinOverLane(t *testing.T) { playSeeds(t, newLaneWorld, laneShare) }

// playSeeds plays seeds in the worlds that build returns. There are share times less than usual.
func playSeeds(t *testing.T, build func(*testing.T, uint64) *world, share uint64) {
	t.Helper()
	if seed := environ(t, "OUTBOX_TEST_SEED", 0); seed != 0 {
		w := play(t, seed, build, nil)
		t.Logf("history:\n%s", w.history)
		return
	}
	var total struct {
		sync.Mutex
		rows, duplicates, runs, updates int
		failed                          bool
	}
	first, seeds := uint64(1), uint64(defaultSeeds) // always the same ones, so that an unlucky draw holds up no change
	if need.Full() || os.Getenv("OUTBOX_TEST_SEEDS") != "" {
		first, seeds = rand.Uint64N(1<<40), fullSeeds
	}
	seeds = (environ(t, "OUTBOX_TEST_SEEDS", seeds) + share - 1) / share
	t.Run("seeds", func(t *testing.T) {
		const parts = 8
		for part := range uint64(parts) {
			t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
				t.Parallel()
				for seed := first + part; seed < first+seeds; seed += parts {
					w := play(t, seed, build, nil)
					total.Lock()
					total.rows += len(w.history.rows)
					total.duplicates += w.history.checker.Counts().Duplicates
					total.runs += int(w.runs.Load())
					total.updates += w.history.updates
					if t.Failed() && !total.failed {
						t.Logf("history:\n%s", w.history)
					}
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

// play runs a seed in the world that build returns and reports the violations. It first calls mutate, which may change the world. If
// mutate is not nil, violations do not fail the test.
func play(t *testing.T, seed uint64, build func(*testing.T, uint64) *world, mutate func(*world)) *world {
	t.Helper()
	var w *world
	defer func() {
		if p := recover(); p != nil { // synctest panics if goroutines are deadlocked or still run at the end
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Fatalf("OUTBOX_TEST_SEED=%d: %v\n%s\n%s", seed, p, w.history, stacks)
		}
	}()
	var playing atomic.Pointer[history]
	over := make(chan struct{})
	defer close(over)
	go panicIfStuck(seed, &playing, over) // it ends with play
	synctest.Test(t, func(t *testing.T) {
		w = build(t, seed)
		playing.Store(w.history)
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

// panicIfStuck panics if the history has no new event of a later virtual time within a minute of real time, because the goroutines of
// the seed then run, or wait for something that is not of their world, and if the history is flooded. It returns when over is closed.
func panicIfStuck(seed uint64, playing *atomic.Pointer[history], over <-chan struct{}) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	last := int64(-1)
	for seconds := 1; ; seconds++ {
		select {
		case <-second.C:
		case <-over:
			return
		}
		var reached int64
		if h := playing.Load(); h != nil {
			reached = h.reached.Load()
			if h.flooded.Load() {
				panic(fmt.Sprintf("OUTBOX_TEST_SEED=%d: more than %d events; %s", seed, mostEvents, h.firstViolations()))
			}
		}
		if seconds%60 > 0 {
			continue
		}
		if reached == last {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("OUTBOX_TEST_SEED=%d: virtual time stands still", seed))
		}
		last = reached
	}
}

// play injects faults under load. It then ends all faults, waits until everything has arrived, and plays
// a scene.
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
	if w.cfg.ParkedKeys > 0 {
		writer.Go(func() { w.operateParked(writing) })
	}
	if w.cfg.RefillOnLoss {
		writer.Go(func() { w.loseSlots(writing) })
	}
	enemy.run(ctx)
	cancel()
	stopWriting()
	writer.Wait()
	enemy.peace()
	// A relay may still wait for the response to an earlier request, and cannot stop cleanly before. It
	// may also need some time to detect a lost connection.
	time.Sleep(max(longestHold+w.postgres.timeout/2, startup))

	w.history.calmFrom(time.Now())
	w.arrive(patience)
	w.releaseAll()
	w.playScene(enemy.rng)
	w.rest()
	w.launch() // must resend nothing
	w.commitRow(topics[0])
	w.arrive(soon)
	w.rest()
	w.end()
}

// arrive waits until all committed rows are stored and confirmed. After limit it reports a violation.
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

// end stops the servers and waits until all relays and connections have ended.
func (w *world) end() {
	w.postgres.crash()
	w.broker.end()
	w.zombies.Wait()
	w.net.serving.Wait()
	time.Sleep(pgxCloses)
	w.history.note("over: %d runs", w.runs.Load())
}
