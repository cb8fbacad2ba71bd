package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A groupedRelay is a relay with exactly_once over a scripted source and an in-process broker.
type groupedRelay struct {
	*testing.T

	fake *kafkatest.FakeCluster
	txns func() int // committed transactions
}

func newGroupedRelay(t *testing.T) *groupedRelay {
	t.Helper()
	fake := kafkatest.Fake(t, kfake.SeedTopics(1, "order"), kfake.SeedTopics(1, "positions"))
	ends := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Observe: true, TopLevel: true, Count: -1})
	return &groupedRelay{T: t, fake: fake, txns: func() int { return ends.Hits() }}
}

// slotConfirmed is the position of the slot, at which the first tenure starts.
const slotConfirmed pglogrepl.LSN = 1

// start starts a tenure as another process would.
func (g *groupedRelay) start(window int) (*testSession, pglogrepl.LSN) {
	g.Helper()
	cfg := Config{Name: "relay", ExactlyOnce: true, PositionTopic: "positions", DrainTimeout: drainTimeout}
	cfg.Route = encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}
	r, err := New(cfg, slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)))
	if err != nil {
		g.Fatal(err)
	}
	opened, err := kafka.Config{Brokers: g.fake.Addrs, ExactlyOnce: true, WindowRecords: window}.Open(g.Context(), r.log)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = opened.Close() })
	r.sink.Store(&opened)
	if r.positions.store, err = opened.OpenPositions(g.Context(), "positions", "relay"); err != nil {
		g.Fatal(err)
	}
	found, err := r.positions.readStore(g.Context())
	if err != nil {
		g.Fatal(err)
	}
	s := server(slotConfirmed)
	if err := r.positions.claim(g.Context(), found, s); err != nil {
		g.Fatal(err)
	}
	start, err := r.positions.chooseStart(g.Context(), s)
	if err != nil {
		g.Fatal(err)
	}
	t := newTenure(r, slotIdentity{}, max(start, slotConfirmed), r.newWriter)
	t.pump.published, t.pump.decoder = &catalog.Publication{Insert: true}, decoder.New()
	return &testSession{tenure: t, watch: func(context.Context) error { return nil }}, max(start, slotConfirmed)
}

// recorded returns the committed position record.
func (g *groupedRelay) recorded() *checkpoint.Position {
	g.Helper()
	s, _ := g.start(0)
	return new(s.positions.stored)
}

// visible returns the payloads of the committed records.
func (g *groupedRelay) visible() (values []string) {
	g.Helper()
	for _, rec := range g.fake.ReadCommitted(g.T, "order") {
		values = append(values, string(rec.Value))
	}
	return values
}

func (g *groupedRelay) wantVisible(n int) {
	g.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i+1))
	}
	if got := g.visible(); !slices.Equal(got, want) {
		g.Errorf("%d records are visible, want %d, each once and in order", len(got), n)
	}
}

func numbersFrom(from, to int) (ns []int) {
	for n := from; n <= to; n++ {
		ns = append(ns, n)
	}
	return ns
}

// await waits until cond returns true.
func (g *groupedRelay) await(what string, cond func() bool) {
	g.Helper()
	wait.For(g, what, cond)
}

// TestGroupHasItsPosition: the records and the position that covers them are committed together, and only a committed
// position may be confirmed.
func TestGroupHasItsPosition(t *testing.T) {
	g := newGroupedRelay(t)
	s, _ := g.start(0)
	src := &scriptedSource{script: joinScripts(transaction(100, 150, "k", 1, 2, 3), transaction(200, 250, "k", 4, 5)), lost: make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- s.next(t.Context(), src) }()
	g.await("the position", func() bool { return s.positions.confirmedPosition() == 250 })
	g.wantVisible(5)
	close(src.lost)
	if err := <-ended; !errors.Is(err, errLost) {
		t.Errorf("session: %v", err)
	}
	s.abandon(errors.New("the process ends"))
	if p := g.recorded(); p.EndLSN != 250 || p.Open.Rows != 0 {
		t.Errorf("recorded %s with %+v", p.EndLSN, p.Open)
	}
}

// TestPositionWithoutRows: a position that no row follows is recorded too.
func TestPositionWithoutRows(t *testing.T) {
	g := newGroupedRelay(t)
	s, _ := g.start(0)
	src := &scriptedSource{script: joinScripts(transaction(100, 150, "k", 1), script{keepalive(500)})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.next(ctx, src) }()
	g.await("the position", func() bool { return s.positions.confirmedPosition() == 500 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("session: %v", err)
	}
	if src.reported != 500 {
		t.Errorf("confirmed %s at the end, want 0/1F4", src.reported)
	}
	g.wantVisible(1)
}

// TestLargeTransactionIsSplit: a transaction of the source that is larger than a group is committed in parts. After a
// crash in the middle, the next process continues after the last committed row.
func TestLargeTransactionIsSplit(t *testing.T) {
	const groupRows = 1000
	const rows = 2*groupRows + 500
	g := newGroupedRelay(t)
	whole := transaction(100, 150, "k", numbersFrom(1, rows)...)
	s, _ := g.start(200)
	s.pump.groups.maxRows = groupRows
	s.drainTimeout = time.Millisecond // a process that is killed does not read to the end of the transaction
	src := &scriptedSource{script: joinScripts(whole[:groupRows+301]), lost: make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- s.next(t.Context(), src) }()
	g.await("the first group", func() bool {
		s.positions.mu.Lock()
		defer s.positions.mu.Unlock()
		return s.positions.stored.Open.Rows == groupRows
	})
	s.fail(errors.New("the process is killed"))
	s.stopWrite(errors.New("the process is killed"))
	<-ended
	s.abandon(errors.New("the process is killed"))

	visible := len(g.visible())
	next, from := g.start(0)
	if open := next.positions.stored.Open; open.CommitLSN != 100 || int(open.Rows) != visible || from != 1 {
		t.Errorf("the next process starts at %s after %+v, %d rows are visible", from, open, visible)
	}
	src = &scriptedSource{script: joinScripts(whole, transaction(200, 250, "k", rows+1))}
	go func() { ended <- next.next(t.Context(), src) }()
	g.await("the rest", func() bool { return next.positions.confirmedPosition() == 250 })
	next.fail(errors.New("the test is over"))
	<-ended
	next.abandon(errors.New("the test is over"))
	g.wantVisible(rows + 1)
}

// TestGroupOfALostSession: rows that a session had read before it was lost are not sent again by the next one.
func TestGroupOfALostSession(t *testing.T) {
	g := newGroupedRelay(t)
	s, _ := g.start(0)
	whole := transaction(100, 150, "k", numbersFrom(1, 500)...)
	if err := s.next(t.Context(), &scriptedSource{script: joinScripts(whole[:301]), err: errLost}); !errors.Is(err, errLost) {
		t.Fatalf("session: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.next(ctx, &scriptedSource{script: joinScripts(whole)}) }()
	g.await("the rest", func() bool { return s.positions.confirmedPosition() == 150 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("session: %v", err)
	}
	g.wantVisible(500)
}

// TestSmallTransactionsShareAGroup: while a group is being committed, and while messages wait, transactions of the
// source collect in the next group.
func TestSmallTransactionsShareAGroup(t *testing.T) {
	const transactions = 3000
	g := newGroupedRelay(t)
	s, _ := g.start(0)
	var all []script
	for i := range transactions {
		at := pglogrepl.LSN(1000 + 100*i)
		all = append(all, transaction(at, at+50, "k", i+1))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.next(ctx, &scriptedSource{script: joinScripts(all...)}) }()
	g.await("every row", func() bool { return s.positions.confirmedPosition() == 1000+100*(transactions-1)+50 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("session: %v", err)
	}
	g.wantVisible(transactions)
	if n := g.txns(); n > transactions/2 {
		t.Errorf("%d Kafka transactions for %d transactions of the source", n, transactions)
	}
}

// TestExactlyOnceNeedsAPosition: without a position topic, nothing could be read after a crash.
func TestExactlyOnceNeedsAPosition(t *testing.T) {
	if _, err := New(Config{ExactlyOnce: true, Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "position_topic") {
		t.Errorf("New: %v", err)
	}
}

// TestGroupOfABacklogSurvivesAPause: a group that is old ends only if Postgres sends nothing for a moment, and a new one
// at once. So short pauses do not divide a backlog into many small groups, and a row alone does not wait.
func TestGroupOfABacklogSurvivesAPause(t *testing.T) {
	for name, test := range map[string]struct {
		collected, patience time.Duration
	}{
		"a row alone": {0, 0},
		"a backlog":   {3 * groupAge, backlogPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrouper(nil, nil, nil)
				if err := g.addRow(1); err != nil {
					t.Fatal(err)
				}
				bubble.Sleep(test.collected)
				if got := g.patience(false, 0); got != test.patience {
					t.Errorf("the group waits %v for further rows, want %v", got, test.patience)
				}
				if got := g.patience(false, backlogPause); got > 0 {
					t.Errorf("the group waits %v more after a pause of %v", got, backlogPause)
				}
				select { // the pause may end after endIfIdle has looked
				case <-g.expiry(false, backlogPause):
				case <-time.After(time.Second):
					t.Error("nothing ends the group after the pause")
				}
			})
		})
	}
}
