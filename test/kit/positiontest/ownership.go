package positiontest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Server returns the state of a server whose slot has confirmed a position.
func Server(confirmed pglogrepl.LSN) checkpoint.Server {
	return checkpoint.Server{SystemID: "1", Timeline: 1, Slot: "s", Confirmed: confirmed, WALEnd: 10_000}
}

// Promoted returns a server like that of [Server], but on timeline 2, which left timeline 1 at fork.
func Promoted(fork, confirmed pglogrepl.LSN) checkpoint.Server {
	s := Server(confirmed)
	s.Timeline, s.History = 2, checkpoint.History{1: fork}
	return s
}

// Deliver adds a delivered transaction that ends at end to t.
func Deliver(t *checkpoint.Tracker, end pglogrepl.LSN) {
	if err := errors.Join(t.Begin(end-1, time.Time{}), t.Commit(end)); err != nil {
		panic(err)
	}
}

// A broker is a [sink.PositionOpener] with one store.
type broker struct {
	sink.Sink

	store *Store
}

// OpenPositions implements [sink.PositionOpener].
func (b broker) OpenPositions(context.Context, string, string) (sink.PositionStore, error) {
	return b.store, nil
}

// Open returns an open Store of a relay in store, or nowhere if store is nil.
func Open(tb testing.TB, store *Store, log *slog.Logger) *position.Store {
	tb.Helper()
	if store == nil {
		return position.NewStore(position.Place{}, "orders", log)
	}
	s := position.NewStore(position.Place{Topic: "positions"}, "orders", log)
	if err := s.Open(tb.Context(), broker{store: store}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// New returns the Positions of another process. Each of change changes its configuration.
func New(tb testing.TB, store *Store, change ...func(*position.Config)) *position.Positions {
	tb.Helper()
	cfg := position.Config{Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	cfg.Store = Open(tb, store, cfg.Log)
	return position.New(cfg)
}

// Begin begins an ownership of w on s.
func Begin(tb testing.TB, w *position.Positions, s checkpoint.Server) {
	tb.Helper()
	if err := w.Starter.BeginOwnership(tb.Context(), s); err != nil {
		tb.Fatal(err)
	}
}

// Start starts an ownership of w on s, after Begin.
func Start(tb testing.TB, w *position.Positions, s checkpoint.Server) *checkpoint.Tracker {
	tb.Helper()
	start, err := w.Starter.ChooseStart(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	tracker := checkpoint.New(start, nil)
	w.Starter.StartOwnership(tracker)
	tracker.Reread(0)
	return tracker
}

// Started returns the Positions of another process that has started an ownership on s.
func Started(tb testing.TB, store *Store, s checkpoint.Server, change ...func(*position.Config)) (*position.Positions, *checkpoint.Tracker) {
	tb.Helper()
	w := New(tb, store, change...)
	Begin(tb, w, s)
	return w, Start(tb, w, s)
}

// Write makes w write the confirmed position.
func Write(tb testing.TB, w *position.Positions) {
	tb.Helper()
	if _, err := w.Writer.Write(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Run runs w. stop ends that and waits for it.
func Run(tb testing.TB, w *position.Positions) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup // waited for by stop
	running.Go(func() {
		if err := w.Writer.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
