package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A History follows a source over the looks taken at its catalog, for what ends in loss:
// what a slot and a publication deliver can change without a word in the stream. It is
// pure: no connection, no clock. The zero value has seen nothing; it belongs to one
// goroutine at a time.
type History struct {
	// LongTransaction is how long a transaction may be open before it is warned of. Zero
	// means 5 min.
	LongTransaction time.Duration

	last      *State
	retention retention
	oldest    oldest
}

// A Warning is a change that loses nothing, or not yet.
type Warning struct {
	Object string // table public.outbox
	Text   string // what has happened, what follows from it, what to do
	Over   bool   // an earlier warning does not hold any more
}

// Look compares now with the look before. The warnings are new: each comes once, with the
// look in which it begins to hold.
//
// The error wraps ErrPublication, ErrSlotMissing or replication.ErrSlotLost: rows are not delivered any
// more, or may have been left out since the look before. Between two looks at one server
// only: a catalog of another cluster begins a new history.
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
			Text:   fmt.Sprintf("idle_replication_slot_timeout is %s: a relay that is stopped for longer loses its slot", now.IdleSlotTimeout),
		})
	}
	warnings = append(warnings, h.retention.look(now)...)
	return append(warnings, h.oldest.look(now, cmp.Or(h.LongTransaction, LongTransaction))...), nil
}

// LimitAt returns when the WAL that may be retained for the slot is used up, as of the last look,
// see [Trend].
func (h *History) LimitAt() time.Time { return h.retention.limitAt }

// changes compares two looks. An error says between which positions it has happened.
func changes(was, now *State) ([]Warning, error) {
	if was == nil {
		return nil, obstacle(now)
	}
	var c comparison
	err := obstacle(now)
	if err == nil && was.Publication != nil {
		err = c.publications(was.Publication, now.Publication)
	}
	if err != nil {
		err = fmt.Errorf("%w (it was still right at %s, %s, and no longer at %s, %s)",
			err, was.WALEnd, clock(was.ReadAt), now.WALEnd, clock(now.ReadAt))
	}
	return c.warnings, err
}

// obstacle is what Verify finds, as far as it can come about while a slot is streamed from.
func obstacle(c *State) error {
	for _, err := range []error{c.verifyPublication(), c.verifySlot()} {
		if errors.Is(err, replication.ErrPublication) || errors.Is(err, replication.ErrSlotMissing) || errors.Is(err, replication.ErrSlotLost) {
			return err
		}
	}
	return nil
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

func slotObject(c *State) string { return fmt.Sprintf("slot %q", c.SlotName) }
