package relay

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errParkedFull: a bad record would park one key more than the limit.
var errParkedFull = errors.New("no more keys can be parked: see max_parked_keys")

// park parks the key of the bad record rec, if the relay parks keys and rec has a topic
// and a key. letter adds to its dead letter that the key is parked. ok is false if the set of parked keys is full.
func (d *deadLetters) park(rec *sink.Record, o encode.Origin, reason string) (letter func(*sink.Record) *sink.Record, ok bool) {
	if d.parked == nil || rec.Topic == "" || rec.Key == nil {
		return func(dead *sink.Record) *sink.Record { return dead }, true
	}
	key := bytes.Clone(rec.Key)
	parked, ok := d.parked.Park(parking.Key{Topic: rec.Topic, Key: string(key)}, reason, parking.Row{LSN: o.Tx.CommitLSN, Index: o.Index})
	return func(dead *sink.Record) *sink.Record { return encode.Park(dead, key, parked) }, ok
}

// divertParked is the writer's Divert: it returns the dead letter of a record whose key is parked because of an
// earlier one.
func (t *tenure) divertParked(r *sink.Record) *sink.Record {
	d := t.pump.deadLetters
	if d.parked.Empty() || r.Key == nil || r.Topic == d.topic {
		return nil
	}
	commitLSN, index, _ := t.tracker.Locate(checkpoint.Seq(r.Seq)) // it is outstanding
	parked, bad, ok := d.parked.Follow(r.Topic, r.Key, parking.Row{LSN: commitLSN, Index: index})
	if !ok {
		return nil
	}
	o := encode.Origin{Slot: d.slot, Tx: encode.Tx{CommitLSN: commitLSN, Timestamp: r.Timestamp}, Index: index}
	reason := fmt.Sprintf("the key is parked: it waits behind %s", bad)
	d.accept(reason, o)
	d.mu.Lock()
	d.followed++
	d.mu.Unlock()
	return encode.Park(encode.DeadRecord(d.topic, o, r, reason), r.Key, parked)
}

// explainFull adds to err, with which the tenure ends, that the set of parked keys is full.
func (d *deadLetters) explainFull(err error) error {
	if d.parked.Refused() && (as[*sink.RecordError](err) || as[*encode.RowError](err)) {
		return fmt.Errorf("%w; %w", err, errParkedFull)
	}
	return err
}
