package owner

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// original is the WAL of a server, and written that of a copy of it from after the first transaction, to which somebody has written.
var (
	first    = streamtest.Transaction(200, 210, "a", 1)
	original = streamtest.Join(first, streamtest.Transaction(300, 310, "a", 2))
	written  = streamtest.Join(first, streamtest.Transaction(280, 290, "a", 3), streamtest.Transaction(400, 410, "a", 4))
)

// behind is the position of the slot, before every transaction.
const behind = 150

// session runs a session of a server whose slot is behind.
func (s *testSession) session(ctx context.Context, script streamtest.Script) (*streamtest.Source, error) {
	src := &streamtest.Source{Script: script, Err: streamtest.ErrLost}
	s.from = behind
	return src, s.next(ctx, src)
}

// When the slot has gone back, the server resends what was confirmed, with the last transaction. A copy of the server from before that, to
// which somebody has written, does not have it: the relay sends and confirms nothing of it, because it cannot tell which rows are new.
func TestOwnershipEndsOnACopyOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prod := newScriptedProducer()
		s := newTestSession(t, nil, prod, 0)
		for _, script := range []streamtest.Script{streamtest.Join(first), original, original} {
			if _, err := s.session(t.Context(), script); !errors.Is(err, streamtest.ErrLost) {
				t.Fatal(err)
			}
		}
		src, err := s.session(t.Context(), written)
		if !isA[*checkpoint.HistoryError](err) || fault.ExitCode(err) != exit.Continuity {
			t.Errorf("the session on the copy ended with %v", err)
		}
		if got := prod.records(); got != "a/1 a/2" || src.Confirmed != 0 {
			t.Errorf("sent %s, confirmed %s to the copy", got, src.Confirmed)
		}
	})
}

// A reporter is a source that reports a position when the writer is flushed, as if a status update was due at that moment, and at its end.
type reporter struct {
	streamtest.Source

	due, done chan struct{}
	reports   []pglogrepl.LSN
}

func (r *reporter) Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error {
	<-r.due
	r.reports = append(r.reports, confirmed())
	close(r.done)
	err := r.Source.Run(ctx, confirmed, out)
	r.reports = append(r.reports, confirmed())
	return err
}

type flushed struct {
	*scriptedProducer

	then func()
}

func (p *flushed) Flush() {
	if then := p.then; then != nil {
		p.then = nil
		then()
	}
}

// Nothing is confirmed to a server before it is recognized, also not while a session of an ownership that goes on begins.
func TestNothingIsConfirmedToACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prod := &flushed{scriptedProducer: newScriptedProducer()}
		s := newTestSession(t, nil, prod, 0)
		if _, err := s.session(t.Context(), original); !errors.Is(err, streamtest.ErrLost) {
			t.Fatal(err)
		}
		synctest.Wait()
		src := &reporter{Source: streamtest.Source{Script: written, Err: streamtest.ErrLost}, due: make(chan struct{}), done: make(chan struct{})}
		prod.then = func() {
			close(src.due)
			<-src.done
		}
		if err := s.next(t.Context(), src); !isA[*checkpoint.HistoryError](err) {
			t.Errorf("the session on the copy ended with %v", err)
		}
		for _, report := range src.reports {
			if report != 0 {
				t.Errorf("confirmed to the copy: %s", src.reports)
			}
		}
	})
}

// Who accepts a gap once does not accept every copy that the process meets later.
func TestACopyIsAcceptedOnce(t *testing.T) {
	for name, recognizes := range map[string]bool{"at once": false, "after another session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _ := newTestOwner(t, settings{})
				o.positions = position.New(position.Config{Store: o.cfg.Store, AcceptGap: true, Log: slog.New(slog.DiscardHandler)})
				s := newSessionOf(o, nil, newScriptedProducer(), 0)
				s.published = &catalog.Publication{Insert: true}
				o.ownership = s.ownership
				s.ownership.run(t.Context())
				session := func(script streamtest.Script) error {
					opened := o.startSession(t.Context(), &streamtest.Source{Script: script, Err: streamtest.ErrLost}, slotIdentity{}, 1)
					opened.from = behind
					return o.RunSession(t.Context(), opened, s.published, &s.catalog, s.watch)
				}
				if recognizes {
					if err := session(original); !errors.Is(err, streamtest.ErrLost) {
						t.Fatal(err)
					}
				} else {
					s.tracker.Recall(checkpoint.Landmark{CommitLSN: 300})
				}
				err := session(written)
				if errors.Is(err, fault.ErrCopyAccepted) == recognizes {
					t.Errorf("the session on the copy ended with %v", err)
				}
			})
		})
	}
}

// Postgres resends confirmed transactions if the slot has gone back. Their changes do not stop the relay, although the publication does not
// publish such changes any more.
func TestConfirmedChangesComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t, nil, newScriptedProducer(), 0)
		deletion := binary.BigEndian.AppendUint32([]byte{'D'}, streamtest.OutboxOID)
		deletion = binary.BigEndian.AppendUint16(append(deletion, 'K'), 5)
		for range 5 {
			deletion = append(binary.BigEndian.AppendUint32(append(deletion, 't'), 1), 'x')
		}
		script := streamtest.Join(first, streamtest.Script{streamtest.Begin(240), streamtest.WALData(deletion), streamtest.Commit(240, 250)}, streamtest.Transaction(300, 310, "a", 2))
		for _, deletes := range []bool{true, false} {
			s.published = &catalog.Publication{Insert: true, Delete: deletes}
			if _, err := s.session(t.Context(), script); !errors.Is(err, streamtest.ErrLost) {
				t.Errorf("published %t: the session ended with %v", deletes, err)
			}
		}
		s.abandon(errors.New("the test is over"))
	})
}
