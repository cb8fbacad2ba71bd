package pump

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// DeadLetters decides whether a row or record that cannot be delivered goes to the dead-letter
// topic, and counts and logs dead letters. Its methods may be called from any goroutine. All but LogNew
// return immediately.
type DeadLetters struct {
	topic    string // empty: no dead-letter topic
	slot     string
	idColumn encode.ColumnNames
	log      *slog.Logger
	wake     chan struct{} // cap 1; dead letters to log

	parked       *parking.Set  // nil: no keys are parked
	topicTimeout time.Duration // DeadLetterConfig.TopicTimeout
	holdUp       atomic.Bool   // unacknowledged records keep the pump from reading, or the relay from stopping

	mu        sync.Mutex
	total     uint64
	rejected  uint64    // of total: records that the broker rejected
	followed  uint64    // of total: records that follow a bad one of their key
	truncated uint64    // of total: rejected by the topic as they were
	logged    uint64    // of total without followed: logged
	loggedCut uint64    // of truncated: logged
	parkedAt  time.Time // of the newest parking that is logged, or was there before
	reason    string    // of the newest dead letter
	cutReason string    // of the newest truncated one
	origin    encode.Origin
}

// DeadLetterConfig configures DeadLetters.
type DeadLetterConfig struct {
	Topic        string // empty: no dead-letter topic
	Slot         string
	IDColumn     encode.ColumnNames
	TopicTimeout time.Duration // how long a row waits for a missing topic
	Parked       *parking.Set  // nil: no keys are parked
	Log          *slog.Logger
}

// NewDeadLetters returns the DeadLetters of a process.
func NewDeadLetters(cfg DeadLetterConfig) *DeadLetters {
	return &DeadLetters{
		topic: cfg.Topic, slot: cfg.Slot, idColumn: cfg.IDColumn, log: cfg.Log, wake: make(chan struct{}, 1), parked: cfg.Parked,
		topicTimeout: cfg.TopicTimeout, parkedAt: time.Now(),
	}
}

// Parked returns the set of parked keys, or nil if no keys are parked.
func (d *DeadLetters) Parked() *parking.Set { return d.parked }

// HoldUp says that unacknowledged records keep the relay from stopping.
func (d *DeadLetters) HoldUp() { d.holdUp.Store(true) }

// accept counts a dead letter for the row or record at o, and reports true. It reports false if there is no
// dead-letter topic.
func (d *DeadLetters) accept(reason string, o encode.Origin) bool {
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

// GiveUpTopic reports whether the rows that wait for a missing topic, which they have chosen, become dead
// letters. Anyone who can insert a row can name such a topic, so rows wait only as long as they hold up neither
// others nor a stop.
func (d *DeadLetters) GiveUpTopic(m sink.Missing) bool {
	return m.Destination != d.topic &&
		(time.Since(m.Since) >= d.topicTimeout || m.WindowShare > missingShare || d.holdUp.Load())
}

// replaceRecord returns the dead letter for a rejected record, or nil if the rejection must stop the relay.
// If the broker rejects a dead letter because of its size or a header, replaceRecord returns a truncated one.
func (d *DeadLetters) replaceRecord(tx encode.Tx, index int, rec *sink.Record, rejected *sink.RecordError) *sink.Record {
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

// follow returns the dead letter of the record at o if its key is parked because of an earlier one, and otherwise nil.
func (d *DeadLetters) follow(r *sink.Record, o encode.Origin) *sink.Record {
	parked, bad, ok := d.parked.Follow(r.Topic, r.Key, parking.Row{LSN: o.Tx.CommitLSN, Index: o.Index})
	if !ok {
		return nil
	}
	reason := fmt.Sprintf("the key is parked: it waits behind %s", bad)
	d.mu.Lock()
	d.total++
	d.followed++
	d.mu.Unlock()
	return encode.Park(encode.DeadRecord(d.topic, o, r, reason), r.Key, parked)
}

func (d *DeadLetters) truncate(deadLetter *sink.Record, rejected *sink.RecordError) *sink.Record {
	if !rejected.TooLarge && !rejected.BadHeader {
		return nil
	}
	short := encode.TruncateDeadLetter(deadLetter, d.idColumn, rejected.TooLarge)
	if short != nil {
		d.mu.Lock()
		d.truncated++
		d.cutReason = rejected.Error()
		d.mu.Unlock()
		if l, ok := encode.ParseDeadLetter(short); ok && l.Parked != nil {
			d.parked.Truncate(l.Parked.Parking, parking.Row{LSN: l.LSN, Index: l.Index}, l.EventID(d.idColumn))
		}
		signal(d.wake)
	}
	return short
}

// deadLetterLogInterval is how long LogNew collects dead letters before it logs them, because there may be very many. By then it is
// known, too, whether a dead letter is truncated.
const deadLetterLogInterval = time.Second

// LogNew logs the numbers of new dead letters and parked keys, and the newest of each, until ctx ends.
func (d *DeadLetters) LogNew(ctx context.Context) error {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(deadLetterLogInterval):
		case <-ctx.Done():
		}
		d.logOnce(ctx)
	}
}

func (d *DeadLetters) logOnce(ctx context.Context) {
	d.mu.Lock()
	bad := d.total - d.followed // those that follow a bad one of their key are expected
	n, cut, reason, why, origin := bad-d.logged, d.truncated-d.loggedCut, d.reason, d.cutReason, d.origin
	d.logged, d.loggedCut = bad, d.truncated
	d.mu.Unlock()
	if n > 0 {
		d.log.WarnContext(ctx, "rows replaced by dead letters", slog.Uint64("number", n), slog.String("topic", d.topic),
			slog.String("newest", reason), slog.String("commit_lsn", origin.Tx.CommitLSN.String()), slog.Int("row", origin.Index))
	}
	if cut > 0 {
		d.log.WarnContext(ctx, "dead letters truncated, the topic rejects them as they were",
			slog.Uint64("number", cut), slog.String("topic", d.topic), slog.String("newest", why))
	}
	d.logParked(ctx)
}

// logParked logs the number of keys that were parked since the last call and are still parked, and the newest. A key is a value of
// a row, so the line has the id of the parking instead.
func (d *DeadLetters) logParked(ctx context.Context) {
	all := d.parked.List()
	seen := slices.IndexFunc(all, func(p parking.Parking) bool { return p.Since.After(d.parkedAt) })
	if seen < 0 {
		return
	}
	newest := all[len(all)-1]
	d.parkedAt = newest.Since
	d.log.WarnContext(ctx, "keys parked, their later records wait", slog.Int("number", len(all)-seen), slog.String("topic", newest.Topic),
		slog.String("newest", newest.Reason), slog.String("fix", newest.Instruction()))
}

// Counts returns the number of dead letters, and how many of them are for records that the broker rejected, and for
// records that follow a bad one of their key.
func (d *DeadLetters) Counts() (total, rejected, followed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total, d.rejected, d.followed
}

// signal puts a token into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
