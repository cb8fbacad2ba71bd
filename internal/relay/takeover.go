package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A slotIdentity is what a position is valid for. After a promotion or on another server the same
// LSN names other data.
type slotIdentity struct {
	system replication.System
	slot   string
}

const (
	// firstAnswer is how long the position store may take before the relay says that it waits for it,
	// and no longer for the source, and storeTimeout how long a later attempt may take.
	firstAnswer  = time.Second
	storeTimeout = 5 * time.Second

	// handOverAfter is how long a session holds the slot although the store does not answer, and
	// handOverFor how long it is free then: a standby may have a path to the broker.
	handOverAfter = time.Minute
	handOverFor   = time.Second
)

var (
	// errForeignClaim: another process has claimed the slot.
	errForeignClaim = errors.New("another instance has taken over")

	// errSlotTaken: the server process that holds the slot is not that of the session.
	errSlotTaken = errors.New("another connection has the slot")

	// errNoStore: the position store did not answer while the session held the slot.
	errNoStore = errors.New("the position store does not answer")
)

// takeOver decides what a session may send: the present tenure goes on, or, if another process may
// have sent in between, a new one begins, under a claim that is above all others. When it returns,
// the session held the slot after the claim was stored: whoever has it later reads the claim.
func (r *Relay) takeOver(ctx context.Context, s *session, stream *replication.Stream) error {
	ctx, cancel := s.during(ctx)
	defer cancel()
	var found *survey
	err := r.askStore(ctx, s, stream, func(ctx context.Context) (err error) {
		found, err = r.positions.survey(ctx)
		return err
	})
	if err != nil {
		return err
	}
	server, slot, err := r.look(ctx, s, stream)
	if err != nil {
		return err
	}
	if t := r.tenure; t != nil && t.id == s.id && t.resumable() && r.positions.continues(found, server) {
		return r.skip.startSession(s.id, t.tracker.Confirmed(), slot.ConfirmedFlushLSN, server.WALEnd)
	}
	if err := r.positions.refuses(found, server); err != nil {
		return err
	}
	r.warnLostTail(ctx, found.position, server)
	cause := errForeignClaim
	if r.tenure != nil && r.tenure.id != s.id {
		cause = errOtherServer
	}
	r.endTenure(ctx, cause)
	err = r.askStore(ctx, s, stream, func(ctx context.Context) error { return r.positions.claim(ctx, found, server) })
	if err != nil {
		return err
	}
	if server, slot, err = r.look(ctx, s, stream); err != nil {
		return err
	}
	return r.startTenure(ctx, s, server, slot)
}

// askStore has ask read from the position store or write to it. While the store does not answer, the
// session holds the slot, up to handOverAfter.
func (r *Relay) askStore(ctx context.Context, s *session, stream *replication.Stream, ask func(context.Context) error) error {
	longest := storeTimeout
	if t := stream.SenderTimeout(); t > 0 {
		longest = min(longest, t/5) // the fence waits half of it at most
	}
	limit := min(firstAnswer, longest)
	for began := time.Now(); ; limit = longest {
		asked := time.Now()
		err := answer(ctx, limit, ask)
		if !errors.Is(err, errNoStore) || time.Since(began) >= handOverAfter {
			return err
		}
		r.phase.setState(Waiting, err)
		r.waits.announce(ctx, err)
		if _, _, err := r.look(ctx, s, stream); err != nil {
			return err
		}
		if err := pause(ctx, time.Until(asked.Add(firstAnswer))); err != nil {
			return err
		}
	}
}

// answer returns what ask returns, or errNoStore if the store does not answer within limit.
func answer(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ask(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil || errors.Is(err, sink.ErrUnreachable):
		return fmt.Errorf("%w: %w", errNoStore, err)
	}
	return err
}

// checkStore returns errNoStore if nothing has been delivered for handOverAfter and the store does not
// answer either: no broker is reached.
func (r *Relay) checkStore(ctx context.Context) error {
	if r.positions.store == nil {
		return nil
	}
	if since := (*r.sink.Load()).Stat().StalledSince; since.IsZero() || time.Since(since) < handOverAfter {
		return nil
	}
	err := answer(ctx, storeTimeout, func(ctx context.Context) error {
		_, err := r.positions.survey(ctx)
		return err
	})
	if errors.Is(err, errNoStore) {
		return err
	}
	return nil
}

// look reads the catalog of the server that streams, and checks that the session holds the slot.
func (r *Relay) look(ctx context.Context, s *session, stream *replication.Stream) (checkpoint.Server, *catalog.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	asked := time.Now()
	state, err := catalog.Inspect(ctx, stream.Config().Conn, r.cfg.Source.Publication, r.cfg.Source.Slot)
	switch {
	case err != nil:
		return checkpoint.Server{}, nil, err
	case state.SystemID != s.id.system.ID:
		return checkpoint.Server{}, nil, errOtherServer
	case state.Slot == nil || state.Slot.ActivePID != int32(s.pid):
		return checkpoint.Server{}, nil, errSlotTaken
	}
	stream.Heard(asked)
	server := serverOf(s, stream)
	server.Confirmed, server.WALEnd = state.Slot.ConfirmedFlushLSN, state.WALEnd
	return server, state.Slot, nil
}

// startTenure begins a tenure at the position record, under the claim that was just stored.
func (r *Relay) startTenure(ctx context.Context, s *session, server checkpoint.Server, slot *catalog.Slot) error {
	start, err := r.positions.chooseStart(ctx, server)
	if err != nil {
		return err
	}
	planned, err := r.planCopy(ctx, slot)
	if err != nil {
		return err
	}
	if err := r.skip.startSession(s.id, start, server.Confirmed, server.WALEnd); err != nil {
		return err
	}
	switch {
	case planned != nil:
		start = 0 // the copy lies before the slot's position
	case start == 0:
		start = server.Confirmed // not 0/0: a crash of the server may move the slot back behind it
	}
	r.tenure = newTenure(r, s.id, start, (*r.sink.Load()).NewWriter)
	r.tenure.pump.initialCopy = planned
	r.tenure.run(ctx)
	return nil
}

// endTenure abandons the present tenure, if there is one: nothing more is sent, and what has no
// outcome is sent again by the next one.
func (r *Relay) endTenure(ctx context.Context, cause error) {
	if t := r.tenure; t != nil {
		t.abandon(cause)
		r.log.InfoContext(ctx, "what is not confirmed is sent again", slog.String("confirmed", t.tracker.Confirmed().String()),
			slog.Any("reason", cause))
		r.tenure = nil
	}
}
