package relay

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deadLetters decides whether a row or record that cannot be delivered goes to the dead-letter
// topic, and counts and logs dead letters. Its methods may be called from any goroutine. All but logNew
// return immediately.
type deadLetters struct {
	topic    string // empty: no dead-letter topic
	slot     string
	idColumn encode.ColumnNames
	log      *slog.Logger
	wake     chan struct{} // cap 1; dead letters to log

	parked       *parking.Set  // nil: no keys are parked
	topicTimeout time.Duration // Config.MissingTopicTimeout
	holdUp       atomic.Bool   // unacknowledged records keep the pump from reading, or the relay from stopping

	mu        sync.Mutex
	total     uint64
	rejected  uint64 // of total: records that the broker rejected
	followed  uint64 // of total: records that follow a bad one of their key
	truncated uint64 // of total: too large for the topic
	logged    uint64 // of total: logged
	loggedCut uint64 // of truncated: logged
	reason    string // of the newest dead letter
	origin    encode.Origin
}

func newDeadLetters(cfg Config, log *slog.Logger) *deadLetters {
	return &deadLetters{
		topic: cfg.DeadLetterTopic, slot: cfg.Source.Slot, idColumn: cfg.Route.Columns.ID, log: log, wake: make(chan struct{}, 1),
		topicTimeout: cfg.MissingTopicTimeout,
	}
}

// accept counts a dead letter for the row or record at o, and reports true. It reports false if there is no
// dead-letter topic.
func (d *deadLetters) accept(reason string, o encode.Origin) bool {
	if d.topic == "" {
		return false
	}
	d.mu.Lock()
	d.total++
	d.reason, d.origin = reason, o
	d.mu.Unlock()
	signal(d.wake)
	return true
}

// missingShare is the part of the sink's window that rows may take while they wait for missing topics.
const missingShare = 0.25

// giveUpTopic reports whether the rows that wait for a missing topic, which they have chosen, become dead
// letters. Anyone who can insert a row can name such a topic, so rows wait only as long as they hold up neither
// others nor a stop.
func (d *deadLetters) giveUpTopic(m sink.Missing) bool {
	return m.Destination != d.topic &&
		(time.Since(m.Since) >= d.topicTimeout || m.WindowShare > missingShare || d.holdUp.Load())
}

// replaceRecord returns the dead letter for a rejected record, or nil if the rejection must stop the relay.
// If the broker rejects a dead letter because it is too large, replaceRecord returns a truncated one.
func (d *deadLetters) replaceRecord(tx encode.Tx, index int, rec *sink.Record, rejected *sink.RecordError) *sink.Record {
	o := encode.Origin{Slot: d.slot, Tx: tx, Index: index}
	if rec.Topic == d.topic {
		return d.truncate(rec, rejected)
	}
	park, ok := d.park(rec, o, rejected.Error())
	if !ok || !d.accept(rejected.Error(), o) {
		return nil
	}
	d.mu.Lock()
	d.rejected++
	d.mu.Unlock()
	return park(encode.DeadRecord(d.topic, o, rec, rejected.Error()))
}

func (d *deadLetters) truncate(letter *sink.Record, rejected *sink.RecordError) *sink.Record {
	if !rejected.TooLarge {
		return nil
	}
	short := encode.TruncateDeadLetter(letter, d.idColumn)
	if short != nil {
		d.mu.Lock()
		d.truncated++
		d.mu.Unlock()
		signal(d.wake)
	}
	return short
}

// deadLetterLogInterval is the minimum time between two log lines, because there may be very many dead
// letters.
const deadLetterLogInterval = time.Second

// logNew logs the number of new dead letters, and the newest one, until ctx ends.
func (d *deadLetters) logNew(ctx context.Context) error {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return nil
		}
		d.logOnce(ctx)
		select {
		case <-time.After(deadLetterLogInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *deadLetters) logOnce(ctx context.Context) {
	d.mu.Lock()
	n, cut, reason, origin := d.total-d.logged, d.truncated-d.loggedCut, d.reason, d.origin
	d.logged, d.loggedCut = d.total, d.truncated
	d.mu.Unlock()
	if n > 0 {
		d.log.WarnContext(ctx, "dead letters sent", slog.Uint64("number", n), slog.String("topic", d.topic),
			slog.String("newest", reason), slog.String("commit_lsn", origin.Tx.CommitLSN.String()), slog.Int("row", origin.Index))
	}
	if cut > 0 {
		d.log.WarnContext(ctx, "dead letters truncated, they exceed the size limit of the topic",
			slog.Uint64("number", cut), slog.String("topic", d.topic))
	}
}

// counts returns the number of dead letters, and how many of them are for records that the broker rejected, and for
// records that follow a bad one of their key.
func (d *deadLetters) counts() (total, rejected, followed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total, d.rejected, d.followed
}
