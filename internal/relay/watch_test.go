package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// A scriptedObserver answers each look with the next step, and repeats the last one. It records the calls and their
// times.
type scriptedObserver struct {
	began time.Time
	looks []step
	asked []string // the time and what was called: a look, or the nonce of a snapshot
	emit  error
	stops chan error // the result of the first Wait that receives it
}

type step struct {
	catalog *catalog.State
	err     error
}

func (o *scriptedObserver) Inspect(context.Context) (*catalog.State, error) {
	o.note("look")
	s := o.looks[0]
	if len(o.looks) > 1 {
		o.looks = o.looks[1:]
	}
	return s.catalog, s.err
}

func (o *scriptedObserver) EmitSnapshot(_ context.Context, nonce string) (changed bool, err error) {
	o.note("snapshot of " + nonce)
	return false, o.emit
}

func (o *scriptedObserver) Close(context.Context) { o.note("close") }

func (o *scriptedObserver) Wait(ctx context.Context) error {
	select {
	case err := <-o.stops:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (o *scriptedObserver) note(what string) {
	o.asked = append(o.asked, bubble.Since(o.began).String()+" "+what)
}

// A watch is a watcher with a scripted observer.
type watch struct {
	*watcher
	relay    *Relay
	observer *scriptedObserver
	rows     atomic.Uint64
	log      bytes.Buffer
}

func newWatch(t *testing.T, looks ...step) *watch {
	t.Helper()
	w := &watch{observer: &scriptedObserver{began: time.Now(), looks: looks}}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	c, err := New(Config{Name: "orders", Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.compareCatalog(t.Context(), streamtest.OutboxCatalog()); err != nil {
		t.Fatal(err)
	}
	w.relay = c
	w.watcher = &watcher{
		observer: w.observer, interval: 10 * time.Second, log: log, nonce: "orders",
		sameServer: func(c *catalog.State) bool { return c.SystemID == "7" },
		checkState: func(ctx context.Context, now *catalog.State) error {
			return errors.Join(c.compareCatalog(ctx, now), c.recheckTables(ctx, now))
		},
		isHeld: func() bool { return c.tables.held != nil }, isDue: func() bool { return c.tables.isDue(c.confirmed(nil)) }, rowsSent: w.rows.Load, heard: func(time.Time) {},
	}
	return w
}

// logged counts the log lines that contain text.
func (w *watch) logged(text string) int {
	n := 0
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Columns of today that do not fit end the session only when everything is delivered that was committed before: these
// rows may have had other columns.
func TestWatcherWaitsForRowsWithOlderColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renamed := func(confirmed pglogrepl.LSN) step {
			state := streamtest.CatalogOf("id", "aggregatetype", "aggregateid", "type", "body")
			state.Slot.ConfirmedFlushLSN = confirmed
			return step{catalog: state}
		}
		w := newWatch(t, renamed(0x1000), renamed(0x1000), renamed(0x2000))
		delivered := time.Now().Add(25 * time.Second)
		w.isDue = func() bool { return !time.Now().Before(delivered) && w.relay.tables.isDue(0x2000) }
		err := w.run(t.Context())
		if code := fault.ExitCode(err); code != exit.NoDelivery || !strings.Contains(err.Error(), `no column "payload"`) {
			t.Errorf("exit code %d for %v", code, err)
		}
		if took := bubble.Since(w.observer.began); took != 25*time.Second+heldInterval && took != 25*time.Second {
			t.Errorf("took %s", took)
		}
		if n := w.logged("the relay stops after the rows"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &w.log)
		}
	})
}

// A column that is renamed back in time ends nothing.
func TestColumnsThatFitAgain(t *testing.T) {
	w := newWatch(t)
	renamed := streamtest.CatalogOf("id", "aggregatetype", "aggregateid", "type", "body")
	for _, state := range []*catalog.State{renamed, streamtest.OutboxCatalog()} {
		if err := w.relay.tables.check(t.Context(), state, nil, 0); err != nil {
			t.Error(err)
		}
	}
	if w.relay.tables.isDue(0x3000) {
		t.Error("the error is still held")
	}
}

// If the watcher finds that Postgres leaves out rows, it ends the session with the matching exit code.
func TestWatcherEndsTheSessionIfRowsAreLeftOut(t *testing.T) {
	change := func(f func(c *catalog.State)) *catalog.State {
		c := streamtest.OutboxCatalog()
		f(c)
		return c
	}
	for name, tc := range map[string]struct {
		found *catalog.State
		exit  int
	}{
		"publication dropped":    {change(func(c *catalog.State) { c.Publication = nil }), exit.NoDelivery},
		"table removed":          {change(func(c *catalog.State) { c.Publication.Tables = nil }), exit.NoDelivery},
		"column dropped":         {streamtest.CatalogOf("id", "aggregatetype", "type", "payload"), exit.NoDelivery},
		"slot dropped":           {change(func(c *catalog.State) { c.Slot = nil }), exit.SlotLost},
		"slot lost":              {change(func(c *catalog.State) { c.Slot.WALStatus = "lost" }), exit.SlotLost},
		"nothing":                {streamtest.OutboxCatalog(), exit.OK},
		"of another server":      {change(func(c *catalog.State) { c.SystemID, c.Slot, c.Publication = "8", nil, nil }), exit.OK},
		"table without the type": {streamtest.CatalogOf("id", "aggregatetype", "aggregateid", "payload"), exit.NoDelivery},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatch(t, step{catalog: streamtest.OutboxCatalog()}, step{catalog: tc.found})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := w.run(ctx)
				if code := fault.ExitCode(err); code != tc.exit {
					t.Errorf("exit code %d for %v, want %d", code, err, tc.exit)
				}
				if want := 20 * time.Second; tc.exit != exit.OK && bubble.Since(w.observer.began) != want {
					t.Errorf("took %s, want %s", bubble.Since(w.observer.began), want)
				}
				if last := w.observer.asked[len(w.observer.asked)-1]; !strings.HasSuffix(last, "close") {
					t.Errorf("the last thing is %s", last)
				}
			})
		})
	}
}

// The watcher recognizes the streaming server by the process that holds the slot. That works after a promotion, and
// if the earlier catalog came from another server.
func TestWatcherRecognisesAPromotedStandby(t *testing.T) {
	look := func(systemID string, pid int32, recovery bool) *catalog.State {
		c := streamtest.OutboxCatalog()
		c.SystemID, c.InRecovery, c.Slot.ActivePID = systemID, recovery, pid
		return c
	}
	same := recogniseServer("7", 41, true)
	for i, tc := range []struct {
		found *catalog.State
		want  bool
	}{
		{look("7", 41, true), true},
		{look("8", 41, true), false},
		{look("7", 0, false), false}, // the primary of this standby
		{look("7", 41, false), true}, // promoted
		{look("7", 0, false), true},  // then the session was lost
		{look("7", 0, true), false},  // a standby of it
	} {
		if got := same(tc.found); got != tc.want {
			t.Errorf("look %d: %t", i, got)
		}
	}
}

// The watcher detects that the WAL sender has ended even if nothing is read. A look may reach another server, so
// this counts only after a look has shown that process as the owner of the slot.
func TestWatcherEndsTheSessionIfItsServerProcessHasEnded(t *testing.T) {
	held, free := streamtest.OutboxCatalog(), streamtest.OutboxCatalog()
	held.Slot.ActivePID, free.Slot.ActivePID = 41, 0
	for want, looks := range map[error][]step{
		nil:                        {{catalog: free}},
		replication.ErrUnreachable: {{catalog: free}, {catalog: held}, {catalog: free}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch(t, looks...)
			w.pid = 41
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.run(ctx); !errors.Is(err, want) {
				t.Errorf("%d looks: %v", len(looks), err)
			}
		})
	}
}

// A failed look does not end the session. The watcher logs when looks start to fail and when they succeed again.
func TestWatcherSurvivesAnUnreadableCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := step{err: replication.ErrUnreachable}
		other := streamtest.OutboxCatalog()
		other.SystemID = "8"
		w := newWatch(t, lost, lost, step{catalog: streamtest.OutboxCatalog()}, step{catalog: other}, lost, step{catalog: streamtest.OutboxCatalog()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		if err := w.run(ctx); err != nil {
			t.Error(err)
		}
		if n := w.logged("cannot read the catalog"); n != 2 {
			t.Errorf("%d lines about failing looks:\n%s", n, &w.log)
		}
		if n := w.logged("readable again"); n != 2 {
			t.Errorf("%d lines about looks that succeed again", n)
		}
	})
}

// The watcher logs a warning once, and Stat has the figures.
func TestWatcherWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := streamtest.OutboxCatalog()
		left := int64(0x400)
		short.Slot.SafeWALSize = &left
		w := newWatch(t, step{catalog: short})
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		if err := w.run(ctx); err != nil {
			t.Error(err)
		}
		if n := w.logged("max_slot_wal_keep_size"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &w.log)
		}
		want := SlotStat{ReadAt: short.ReadAt, SystemID: short.SystemID, Exists: true, WALStatus: "reserved", WALEnd: 0x2000, RetainedBytes: 0x1000, SafeBytes: &left}
		if diff := cmp.Diff(want, w.relay.Stat().Slot); diff != "" {
			t.Errorf("Stat (-want +got):\n%s", diff)
		}
	})
}

// The watcher writes a snapshot after the start, at most one a second while rows flow, and one after the last row.
func TestWatcherWritesSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, step{catalog: streamtest.OutboxCatalog()})
		w.emitSnapshots = true
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.run(ctx) }()
		bubble.Sleep(3100 * time.Millisecond)
		for range 20 { // until 5.1 s
			w.rows.Add(1)
			bubble.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		bubble.Sleep(5 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{"1s snapshot of orders", "4s snapshot of orders", "5s snapshot of orders", "6s snapshot of orders", "10s look", "10.1s close"}
		if diff := cmp.Diff(want, w.observer.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	})
}

// A short lease makes looks frequent. The snapshots stay a second apart.
func TestWatcherWritesSnapshotsBetweenFrequentLooks(t *testing.T) {
	for _, interval := range []time.Duration{400 * time.Millisecond, 1600 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch(t, step{catalog: streamtest.OutboxCatalog()})
			w.emitSnapshots, w.interval = true, interval
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			rows := w.rowsSent
			w.rowsSent = func() uint64 { w.rows.Add(1); return rows() } // rows flow all the time
			if err := w.run(ctx); err != nil {
				t.Error(err)
			}
			asked := slices.DeleteFunc(w.observer.asked, func(a string) bool { return !strings.Contains(a, "snapshot") })
			want := []string{"1s snapshot of orders", "2s snapshot of orders", "3s snapshot of orders", "4s snapshot of orders", "5s snapshot of orders"}
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("looks every %v: asked (-want +got):\n%s", interval, diff)
			}
		})
	}
}

// If the watcher cannot write a snapshot, it retries after the next look. It logs the problem once. It does not log
// a lost connection.
func TestWatcherRetriesASnapshotAfterTheNextLook(t *testing.T) {
	readOnly := replication.QueryError(t.Context(), "write a snapshot to the WAL", &pgconn.PgError{Severity: "ERROR", Code: "25006"})
	for err, lines := range map[error]int{replication.ErrAccess: 1, replication.ErrUnreachable: 0, readOnly: 1} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatch(t, step{catalog: streamtest.OutboxCatalog()})
				w.emitSnapshots, w.observer.emit = true, err
				w.rows.Store(1)
				ctx, cancel := context.WithTimeout(t.Context(), 35500*time.Millisecond)
				defer cancel()
				if err := w.run(ctx); err != nil {
					t.Error(err)
				}
				emits := 0
				for _, a := range w.observer.asked {
					if strings.Contains(a, "orders") {
						emits++
					}
				}
				if emits < 4 || emits > 5 || w.logged("could not write a snapshot") != lines || w.logged("rows are relayed all the same") != lines {
					t.Errorf("asked %v, logged\n%s", w.observer.asked, &w.log)
				}
			})
		})
	}
}

// If the server shuts down, the watcher ends the session at once.
func TestWatcherEndsTheSessionOfAServerThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, step{catalog: streamtest.OutboxCatalog()})
		w.observer.stops = make(chan error)
		time.AfterFunc(12*time.Second, func() { w.observer.stops <- replication.ErrServerStopping })
		if err := w.run(t.Context()); !errors.Is(err, replication.ErrServerStopping) {
			t.Errorf("ended with %v", err)
		}
		if diff := cmp.Diff([]string{"10s look", "12s close"}, w.observer.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	})
}
