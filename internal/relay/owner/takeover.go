package owner

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// firstStoreTimeout limits the first attempt to use the position store. After it, the relay reports that it waits for the broker.
const firstStoreTimeout = time.Second

// A session that cannot reach the store releases the slot after ReleaseAfter, for ReleaseFor,
// because a standby may be able to reach the broker.
const (
	ReleaseAfter = time.Minute
	ReleaseFor   = time.Second
)

// errCopyInterrupted is a reason for a new ownership, like [position.ErrPromoted].
var errCopyInterrupted = errors.New("the session was lost before all rows of the table were acknowledged")

// TakeOver decides what a session sends. If it returns an error, the session has ended. The current ownership continues if no other
// process has become the owner of the position store in between. Otherwise a new ownership starts. When TakeOver returns nil, the
// session has held the slot since this process is the owner. So every process that acquires the slot later becomes the owner later.
func (o *Owner) TakeOver(ctx context.Context, s *Session, stream *replication.Stream) error {
	err := o.takeOver(ctx, s, stream)
	if err == nil {
		return nil
	}
	s.leave(ctx, errStopReading)
	s.observer.Close(ctx)
	if s.unstopped() {
		return s.err
	}
	return err
}

func (o *Owner) takeOver(ctx context.Context, s *Session, stream *replication.Stream) error {
	ctx, cancel := s.during(ctx)
	defer cancel()
	server, slot, err := o.checkSlot(ctx, s, stream)
	if err != nil {
		return err
	}
	s.from = server.Confirmed
	ended, err := o.proveOwnership(ctx, s, stream, server)
	if err != nil {
		return err
	}
	if o.ownership != nil && ended == nil {
		o.followServer(ctx, stream)
		return o.cfg.Pump.Skip.StartSession(s.id.system, o.ownership.tracker.Confirmed(), slot.ConfirmedFlushLSN, server.WALEnd)
	}
	if server, err = o.mayOwn(ctx, s, stream); err != nil {
		return err
	}
	o.endOwnership(ctx, ended)
	err = o.useStore(ctx, s, stream, func(ctx context.Context) error { return o.positions.Starter.BeginOwnership(ctx, server) })
	if err != nil {
		return err
	}
	if server, slot, err = o.checkSlot(ctx, s, stream); err != nil {
		return err
	}
	o.followServer(ctx, stream)
	return o.startOwnership(ctx, s, server, slot)
}

// proveOwnership returns why the current ownership cannot continue, or nil if it can, or if there is none.
func (o *Owner) proveOwnership(ctx context.Context, s *Session, stream *replication.Stream, server checkpoint.Server) (ended, failure error) {
	t := o.ownership
	if t == nil {
		return nil, nil
	}
	if ended := o.mayContinue(t, s, server); ended != nil {
		return ended, nil
	}
	err := o.useStore(ctx, s, stream, o.positions.Recorder.ProveOwner)
	if errors.Is(err, sink.ErrSuperseded) {
		return err, nil
	}
	return nil, err
}

// mayOwn returns an error if an ownership could not start, and otherwise the state of the server. It is called before this process shuts
// out another owner. The record that it has read may be that of an owner who got the slot meanwhile, and be ahead of what the server
// was like before: so the record is compared with the server as it is after that, while the session still holds the slot.
func (o *Owner) mayOwn(ctx context.Context, s *Session, stream *replication.Stream) (server checkpoint.Server, err error) {
	var found *position.Found
	err = o.useStore(ctx, s, stream, func(ctx context.Context) (err error) {
		found, err = o.positions.Recorder.Read(ctx)
		return err
	})
	if err != nil {
		return server, err
	}
	if server, _, err = o.checkSlot(ctx, s, stream); err != nil {
		return server, err
	}
	if err := o.CheckStored(ctx, found, server, o.cfg.CheckPublished); err != nil {
		return server, err
	}
	o.WarnLostTail(ctx, found.Position, server)
	return server, nil
}

// CheckStored returns the error with which a session on s ends because of what is stored. published is CheckPublished of the catalog
// as last read.
func (o *Owner) CheckStored(ctx context.Context, found *position.Found, s checkpoint.Server, published func(recorded string) error) error {
	if err := o.positions.Starter.Check(ctx, found, s, published); err != nil || !o.positions.Starter.ParksAnew(found) {
		return err
	}
	return o.checkDeadLetters(ctx)
}

// useStore calls use, which reads from the position store or writes to it. While the store does not respond,
// it retries, and the session holds the slot, for at most ReleaseAfter.
func (o *Owner) useStore(ctx context.Context, s *Session, stream *replication.Stream, use func(context.Context) error) error {
	interval := position.Timeout
	if t := stream.SenderTimeout(); t > 0 {
		interval = min(interval, t/5) // the fence closes after half of it
	}
	check := func(ctx context.Context) error {
		_, _, err := o.checkSlot(ctx, s, stream)
		return err
	}
	limit := firstStoreTimeout
	for began := time.Now(); ; limit = position.Timeout {
		asked := time.Now()
		err := catalog.Meanwhile(ctx, interval, check, func(ctx context.Context) error { return position.Try(ctx, limit, use) })
		if !errors.Is(err, position.ErrNoStore) || time.Since(began) >= ReleaseAfter {
			return err
		}
		o.cfg.AnnounceWait(ctx, err)
		if err := check(ctx); err != nil {
			return err
		}
		if err := pause(ctx, time.Until(asked.Add(firstStoreTimeout))); err != nil {
			return err
		}
	}
}

// checkSlot asks the server that streams, and checks that the session holds the slot. It
// returns the state of the server and the slot.
func (o *Owner) checkSlot(ctx context.Context, s *Session, stream *replication.Stream) (checkpoint.Server, *catalog.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.StartupTimeout)
	defer cancel()
	asked := time.Now()
	state, err := s.observer.InspectSlot(ctx)
	switch {
	case err != nil:
		return checkpoint.Server{}, nil, err
	case state.SystemID != s.id.system.ID:
		return checkpoint.Server{}, nil, fault.ErrOtherServer
	case state.Slot == nil || state.Slot.ActivePID != int32(s.pid):
		return checkpoint.Server{}, nil, fault.ErrSlotTaken
	}
	stream.Heard(asked)
	server := serverOf(s, stream)
	server.Reading = o.reading()
	server.Confirmed, server.WALEnd = state.Slot.ConfirmedFlushLSN, state.WALEnd
	return server, state.Slot, nil
}

// reading returns what decides which transactions have rows. After a change of it, what an earlier process has confirmed proves nothing.
func (o *Owner) reading() string {
	return strings.Join([]string{o.cfg.Source.Publication, o.cfg.Tables.String(), strings.Join(o.cfg.Pump.Messages, ","), string(o.cfg.Pump.OnUpdate)}, " ")
}

// startOwnership starts an ownership at the position record, after BeginOwnership of the [position.Starter].
func (o *Owner) startOwnership(ctx context.Context, s *Session, server checkpoint.Server, slot *catalog.Slot) error {
	start, err := o.positions.Starter.ChooseStart(ctx, server)
	if err != nil {
		return err
	}
	planned, err := o.cfg.Planner.Plan(ctx, server, slot)
	if err != nil {
		return err
	}
	if err := o.cfg.Pump.Skip.StartSession(s.id.system, start, server.Confirmed, server.WALEnd); err != nil {
		return err
	}
	switch {
	case planned != nil:
		start = 0 // the copy is before the slot's position
	case start == 0:
		start = server.Confirmed // not 0/0: after a crash of the server the slot may be before it
	}
	begin := beginning{id: s.id, start: start, horizon: server.WALEnd, copy: planned}
	o.ownership = o.newOwnership(begin)
	o.ownership.run(ctx)
	return nil
}

// mayContinue returns nil if the ownership t may continue in the session s as long as this process is the owner, and otherwise why not.
func (o *Owner) mayContinue(t *ownership, s *Session, server checkpoint.Server) error {
	switch {
	case t.id != s.id:
		return fault.ErrOtherServer
	case t.cause() != nil:
		return t.cause()
	case t.pump.Copying():
		return errCopyInterrupted
	}
	return o.positions.Record.CanContinue(server)
}

// endOwnership abandons the current ownership, if there is one. The next ownership resends the records without an
// outcome.
func (o *Owner) endOwnership(ctx context.Context, cause error) {
	if t := o.ownership; t != nil {
		t.abandon(cause)
		o.log.InfoContext(ctx, "unconfirmed rows are resent", slog.String("confirmed", t.tracker.Confirmed().String()),
			slog.Any("reason", cause))
		o.ownership = nil
	}
}
