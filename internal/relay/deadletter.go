package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deadLetters takes what cannot be delivered, if it was asked for, so that the rest can be.
// Its methods may be called from any goroutine; those that make letters do not block.
type deadLetters struct {
	topic string // empty: it was not asked for
	slot  string
	log   *slog.Logger
	news  chan struct{} // cap 1: there is something to log

	mu      sync.Mutex
	taken   uint64
	refused uint64 // of these, records that Kafka did not take
	logged  uint64 // how many of them have been
	newest  letter
}

// A letter is what is logged of a dead letter.
type letter struct {
	reason string
	origin encode.Origin
}

func newDeadLetters(topic, slot string, log *slog.Logger) *deadLetters {
	return &deadLetters{topic: topic, slot: slot, log: log, news: make(chan struct{}, 1)}
}

// take reports whether what was refused for reason becomes a dead letter, and notes it then.
func (d *deadLetters) take(reason string, o encode.Origin) bool {
	if d.topic == "" {
		return false
	}
	d.note(letter{reason, o})
	return true
}

// record returns the dead letter of a record that Kafka has refused; nil if none is wanted,
// or if it was a dead letter.
func (d *deadLetters) record(tx encode.Tx, index int, rec *sink.Record, refused *sink.RecordError) *sink.Record {
	o := encode.Origin{Slot: d.slot, Tx: tx, Index: index}
	if rec.Topic == d.topic || !d.take(refused.Error(), o) {
		return nil
	}
	d.mu.Lock()
	d.refused++
	d.mu.Unlock()
	return encode.DeadRecord(d.topic, o, rec, refused.Error())
}

func (d *deadLetters) note(l letter) {
	d.mu.Lock()
	d.taken++
	d.newest = l
	d.mu.Unlock()
	signal(d.news)
}

// logEvery is how often dead letters are logged: a table that has gone wrong may make very
// many of them.
const logEvery = time.Second

// run logs until ctx ends.
func (d *deadLetters) run(ctx context.Context) error {
	for {
		select {
		case <-d.news:
		case <-ctx.Done():
			return nil
		}
		d.mu.Lock()
		newest, n := d.newest, d.taken-d.logged
		d.logged = d.taken
		d.mu.Unlock()
		d.log.WarnContext(ctx, "dead letters", slog.Uint64("number", n), slog.String("topic", d.topic),
			slog.String("newest", newest.reason), slog.String("commit_lsn", newest.origin.Tx.CommitLSN.String()),
			slog.Int("row", newest.origin.Index))
		select {
		case <-time.After(logEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// count returns how many there were, and how many of them Kafka had refused.
func (d *deadLetters) count() (all, refused uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken, d.refused
}
