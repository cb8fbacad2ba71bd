package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errParkedLost: the position topic has lost the parked keys. The relay would send later records of these keys ahead of
// the parked ones.
var errParkedLost = errors.New("the position topic has lost the parked keys of this relay")

// checkParkedLost returns errParkedLost if a relay finds no parked keys in the position topic although its position
// record says that there are some. It does so too if a relay that parks keys finds nothing of an earlier relay there, and
// the dead-letter topic has parked records of its slot. Only the lost set says whether they were released, so the operator
// decides. A later tenure of the process needs no check: its positionWriter keeps what the topic loses.
func (r *Relay) checkParkedLost(ctx context.Context, found *storeState) error {
	p := r.positions
	switch {
	case p.parked.record != nil || p.acceptGap || found.parked.record != nil:
		return nil
	case found.position != nil && found.position.KeysParked:
		return fmt.Errorf("%w: according to the position record from %s there are some. Topics %s and %s", errParkedLost,
			found.position.WrittenAt.UTC().Format(time.RFC3339), r.cfg.Positions, r.cfg.DeadLetterTopic)
	case found.position != nil || p.parked.set == nil:
		return nil
	}
	opening, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	letters, err := sink.OpenDeadLetters(opening, r.cfg.Sink, r.cfg.DeadLetterTopic, r.log)
	if errors.Is(err, sink.ErrMissing) {
		return nil // no relay has sent a dead letter
	}
	if err != nil {
		return err
	}
	defer letters.Close()
	keys, newest, err := r.parkedLetters(ctx, letters)
	if err != nil || keys == 0 {
		return err
	}
	return fmt.Errorf("%w: topic %s has no position record either, and topic %s has records of %d parked keys, the last one from %s",
		errParkedLost, r.cfg.Positions, r.cfg.DeadLetterTopic, keys, newest.UTC().Format(time.RFC3339))
}

// parkedLetters returns how often a key of the relay's slot was parked according to the dead letters, and the time of
// the last of them.
func (r *Relay) parkedLetters(ctx context.Context, letters sink.DeadLetters) (keys int, newest time.Time, err error) {
	spans, err := letters.Spans(ctx)
	if err != nil {
		return 0, newest, err
	}
	found := make(map[string]struct{})
	for _, span := range spans {
		err := letters.Read(ctx, span, func(stored *sink.StoredRecord) error {
			l, ok := encode.ParseDeadLetter(&stored.Record)
			if !ok || l.Parked == nil || l.Slot != r.cfg.Source.Slot {
				return nil
			}
			found[l.Parked.Parking] = struct{}{}
			if l.At.After(newest) {
				newest = l.At
			}
			return nil
		})
		if err != nil {
			return 0, newest, err
		}
	}
	return len(found), newest, nil
}
