package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// checkDeadLetters returns an error that wraps [position.ErrParkedLost] if the dead-letter topic has parked records of the relay's
// slot. It is called if the relay parks keys, and finds nothing of an earlier relay in the position store. Only the lost set says
// whether they were released, so the operator decides.
func (o *Owner) checkDeadLetters(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, o.cfg.StartupTimeout)
	defer cancel()
	deadLetters, err := sink.OpenDeadLetters(opening, o.cfg.Broker, o.cfg.DeadLetterTopic, o.log)
	if errors.Is(err, sink.ErrMissing) {
		return nil // no relay has sent a dead letter
	}
	if err != nil {
		return err
	}
	defer deadLetters.Close()
	keys, newest, err := o.parkedDeadLetters(ctx, deadLetters)
	if err != nil || keys == 0 {
		return err
	}
	return fmt.Errorf("%w: topic %s has no position record either, and topic %s has records of %d parked keys, the last one from %s",
		position.ErrParkedLost, o.cfg.Place, o.cfg.DeadLetterTopic, keys, newest.UTC().Format(time.RFC3339))
}

// parkedDeadLetters returns how often a key of the relay's slot was parked according to the dead letters, and the time of
// the last of them.
func (o *Owner) parkedDeadLetters(ctx context.Context, deadLetters sink.DeadLetters) (keys int, newest time.Time, err error) {
	ranges, err := deadLetters.OffsetRanges(ctx)
	if err != nil {
		return 0, newest, err
	}
	found := make(map[string]struct{})
	for _, offsets := range ranges {
		err := deadLetters.Read(ctx, offsets, func(stored *sink.StoredRecord) error {
			l, ok := encode.ParseDeadLetter(&stored.Record)
			if !ok || l.Parked == nil || l.Slot != o.cfg.Source.Slot {
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
