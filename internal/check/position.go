package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
)

// position checks that a start would continue at the position record.
func (s *sourceChecker) position(ctx context.Context) {
	if s.short { // the relay has started
		return
	}
	if slot := s.catalog.Slot; slot != nil && slot.Active {
		s.ok(positionRecord, "", "not compared with the slot, from which a relay streams")
		return
	}
	usable := s.positionFile()
	ctx, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	next, err := relay.FindNextStart(ctx, s.Relay, slog.New(slog.DiscardHandler))
	if _, unread := errors.AsType[*relay.UnreadError](err); unread {
		s.unread = true
		if !usable {
			return
		}
		s.warn(positionRecord, "", oneLine(err)+", so it is not known whether run would continue there", "let check read it: see the conditions of the sink")
		return
	}
	if err != nil {
		return // the record is not known here, or another condition has the reason
	}
	s.recorded, s.elsewhere, s.recovers = next.Record != nil && !next.First, errors.Is(next.Broken, checkpoint.ErrOtherSystem), next.Recover
	if next.Refused != nil {
		s.refused = ": " + oneLine(next.Refused)
	}
	s.add(PositionRecord(next))
}

// positionFile checks that the relay can read and write the position file, if there is one, and returns false if not.
func (s *sourceChecker) positionFile() bool {
	const name = "position file"
	file := s.Relay.Positions.File
	err := position.NewStore(s.Relay.Positions, s.Relay.Name, slog.New(slog.DiscardHandler)).TestFile()
	switch {
	case err != nil:
		s.fail(name, "", fmt.Sprintf("run would exit with %d: ", fault.ExitCode(err))+oneLine(err),
			cmp.Or(fault.Next(err), "do what the error says")+"; if this is not the operating-system user of the relay, or not its machine, run check there")
	case file != "":
		s.ok(name, "", "another file could be written beside "+file)
	}
	return err == nil
}

// positionRecord is the name of the condition about the position record.
const positionRecord = "position record"

// PositionRecord returns the condition that next continues at the position record.
func PositionRecord(next *relay.NextStart) Condition {
	c := Condition{Name: positionRecord, State: Met}
	p := next.Record
	switch {
	case next.Broken != nil:
		c.State, c.Found = Failed, fmt.Sprintf("run would exit with %d: ", fault.ExitCode(next.Broken))+oneLine(next.Broken)
		c.Fix = cmp.Or(fault.Next(next.Broken), flatten(fault.Advice(next.Broken)))
		return c
	case p == nil:
		c.Found = "none: no relay of this name has run yet, or the record was lost; run continues at the position of the slot"
		return c
	case next.First:
		c.Found = "the first start has not created the slot"
	default:
		c.Found = p.EndLSN.String() + ", from " + p.WrittenAt.UTC().Format(time.RFC3339)
	}
	if what := next.Unfinished(); what != "" {
		c.State, c.Fix = Doubt, "start the relay; delete no rows before its log says that the "+what+" is finished"
		c.Found += "; the " + what + " is not finished, its rows come from the table"
	}
	if next.Doubt != nil {
		found, fix := remedy(next.Doubt)
		c.State, c.Found, c.Fix = Doubt, c.Found+"; "+found, fix
	}
	if stop := p.Stopped; stop != nil {
		c.State, c.Fix = Doubt, flatten(stop.Advice)
		c.Found += fmt.Sprintf("; the relay stopped at %s with exit code %d: %s", stop.At.UTC().Format(time.RFC3339), stop.ExitCode, flatten(stop.Reason))
	}
	return c
}
