package pump

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// ErrParkedFull says that a bad record would park one key more than the limit.
var ErrParkedFull = errors.New("no more keys can be parked: see max_parked_keys")

// park parks the key of the bad record rec, if the relay parks keys and rec has a topic
// and a key. mark adds to its dead letter that the key is parked. ok is false if the set of parked keys is full.
func (d *DeadLetters) park(rec *sink.Record, o encode.Origin, reason string) (mark func(*sink.Record) *sink.Record, ok bool) {
	if d.parked == nil || rec.Topic == "" || rec.Key == nil {
		return func(dead *sink.Record) *sink.Record { return dead }, true
	}
	key := bytes.Clone(rec.Key)
	parked, ok := d.parked.Park(parking.Key{Topic: rec.Topic, Key: string(key)}, reason, parking.Row{LSN: o.Tx.CommitLSN, Index: o.Index})
	return func(dead *sink.Record) *sink.Record { return encode.Park(dead, key, parked) }, ok
}

// ErrDeadLetter says that a rejected record is a dead letter.
var ErrDeadLetter = errors.New("the record is a dead letter")

// explain adds to err, with which the ownership ends, that the set of parked keys is full, or that err is about a dead letter.
func (d *DeadLetters) explain(err error) error {
	rec, rejected := errors.AsType[*sink.RecordError](err)
	_, bad := errors.AsType[*encode.RowError](err)
	switch {
	case rejected && d.topic != "" && rec.Topic == d.topic:
		return fmt.Errorf("%w; %w", err, ErrDeadLetter)
	case d.parked.Refused() && (rejected || bad):
		return fmt.Errorf("%w; %w", err, ErrParkedFull)
	}
	return err
}
