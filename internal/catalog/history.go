package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A History compares successive States of a source, to detect changes that lose rows or may do so:
// the stream does not report that a slot or a publication has changed. It is pure: it has no
// connection and no clock. The zero value is ready to use. One goroutine at a time uses it.
type History struct {
	// LongTransaction is how long a transaction may be open before Look returns a Warning. Zero
	// means 5 min.
	LongTransaction time.Duration

	last      *State
	retention retention
	oldest    oldest
}

// A Warning is a change that has not lost a row, or not yet.
type Warning struct {
	Object string // for example: table public.outbox
	Text   string // what has happened, what follows, and how to fix it
	Over   bool   // the reason for an earlier warning is gone
}

// Look compares now with the State of the previous call. It returns each warning once, when its
// reason first applies.
//
// The error wraps ErrPublication, ErrSlotMissing or ErrSlotLost of package replication: rows are no
// longer delivered, or may have been left out since the previous call. A State of another cluster
// starts a new history.
func (h *History) Look(now *State) ([]Warning, error) {
	was := h.last
	h.last = now
	if was != nil && was.SystemID != now.SystemID {
		*h, was = History{LongTransaction: h.LongTransaction, last: now}, nil
	}
	warnings, err := changes(was, now)
	if err != nil {
		return warnings, err
	}
	if now.IdleSlotTimeout > 0 && (was == nil || was.IdleSlotTimeout != now.IdleSlotTimeout) {
		warnings = append(warnings, Warning{
			Object: slotObject(now),
			Text:   fmt.Sprintf("idle_replication_slot_timeout is %s: Postgres invalidates the slot if the relay is stopped for longer", now.IdleSlotTimeout),
		})
	}
	warnings = append(warnings, h.retention.look(now)...)
	return append(warnings, h.oldest.look(now, cmp.Or(h.LongTransaction, LongTransaction))...), nil
}

// CheckPublished returns what [State.CheckPublished] does for the State of the last call of Look.
func (h *History) CheckPublished(recorded string) error { return h.last.CheckPublished(recorded) }

// CheckUnaltered returns what [State.CheckUnaltered] does for the State of the last call of Look.
func (h *History) CheckUnaltered(recorded string) error { return h.last.CheckUnaltered(recorded) }

// CheckKnown returns what [State.CheckKnown] does for the State of the last call of Look.
func (h *History) CheckKnown(recorded string) error { return h.last.CheckKnown(recorded) }

// LimitAt returns when the retained WAL reaches its limit, as of the last call of Look. See [Trend].
func (h *History) LimitAt() time.Time { return h.retention.limitAt }

// changes compares two States. An error says between which positions the change happened.
func changes(was, now *State) ([]Warning, error) {
	if was == nil {
		return nil, obstacle(now)
	}
	var c comparison
	err := obstacle(now)
	if err != nil {
		err = replaced(was, now, err)
	} else if was.Publication != nil {
		err = c.publications(was, now)
	}
	if err != nil {
		err = fmt.Errorf("%w (correct at %s, %s; no longer at %s, %s)",
			err, was.WALEnd, clock(was.ReadAt), now.WALEnd, clock(now.ReadAt))
	}
	return c.warnings, err
}

// obstacle returns the error of Verify, limited to errors that can arise while a relay streams.
func obstacle(c *State) error {
	for _, err := range []error{c.verifyPublication(), c.VerifyOutboxes(), c.verifySlot()} {
		if errors.Is(err, replication.ErrPublication) || errors.Is(err, replication.ErrSlotMissing) || errors.Is(err, replication.ErrSlotLost) {
			return err
		}
	}
	return nil
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

func slotObject(c *State) string { return fmt.Sprintf("slot %q", c.SlotName) }
