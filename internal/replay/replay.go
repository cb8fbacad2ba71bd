// Package replay resends rows that are still in an outbox table, with the topic, key, partition, value and headers that
// the relay gives them, and one more header.
//
// It reads the table, not the WAL. It does not change a slot or the relay's position record, and a relay may run beside
// it. It sends rows in insertion order, so the records of a key stay in order; they interleave with those of the relay.
// A record lacks what is only in the WAL: the LSN and the commit time of its transaction. Its timestamp is that of the
// row, if it has a column for it.
package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// header is the header of resent records, with the value true. It comes after all others.
const header = "replayed"

// maxWindow is the maximum number of records after the oldest unacknowledged one.
const maxWindow = 1 << 16

// A RowError is a row that stops the replay.
type RowError struct {
	id     string
	reason error // what the router or the broker has against it
}

// Error names the row.
func (e *RowError) Error() string { return fmt.Sprintf("row %q: %v", e.id, e.reason) }

// Unwrap returns the reason.
func (e *RowError) Unwrap() error { return e.reason }

// A Replay is a selection of rows to resend. It may be used by one goroutine at a time and must be closed.
type Replay struct {
	Rows *catalog.Rows

	cfg    relay.Config
	log    *slog.Logger
	router *rows.TableRouter
	timeOf func(values [][]byte) time.Time
	id     int // the index of the id's column
}

// Open selects the rows. It uses Source.Conn, Route, Sink, StartupTimeout and DrainTimeout of cfg.
// The error is a *[encode.ColumnError] if rows of the table cannot become records.
func Open(ctx context.Context, cfg relay.Config, sel catalog.Selection, log *slog.Logger) (*Replay, error) {
	selected, err := catalog.Select(ctx, cfg.Source, sel)
	if err != nil {
		return nil, err
	}
	cfg.Route.Static = append(slices.Clone(cfg.Route.Static), encode.StaticHeader{Name: header, Value: "true"})
	r := &Replay{Rows: selected, cfg: cfg, log: log, timeOf: rows.TimeOf(selected.Table, selected.Time)}
	router, err := cfg.Rows().NewRouter(ctx)
	if err == nil {
		r.router, err = rows.NewTableRouter(router, selected.Table)
	}
	if err != nil {
		selected.Close(ctx)
		return nil, err
	}
	r.id = slices.IndexFunc(selected.Table.Columns, func(c catalog.Column) bool { return c.Name == selected.ID })
	return r, nil
}

// Close closes the Replay.
func (r *Replay) Close(ctx context.Context) { r.Rows.Close(ctx) }

// routeRow returns the record of a row, or a *[RowError] if the row cannot become one.
func (r *Replay) routeRow(values [][]byte) (*sink.Record, error) {
	now := time.Now()
	tx := encode.Tx{CommitTime: now, Timestamp: now}
	if at := r.timeOf(values); !at.IsZero() {
		tx.Timestamp = at
	}
	rec, err := r.router.Route(tx, 0, values)
	if rows.IsRefusal(err) {
		err = &RowError{id: string(values[r.id]), reason: err}
	}
	return rec, err
}

// Preview calls fn with the record of each row, without sending it. The record is valid until fn
// returns.
func (r *Replay) Preview(ctx context.Context, fn func(rec *sink.Record)) error {
	return r.Rows.Each(ctx, func(values [][]byte) error {
		rec, err := r.routeRow(values)
		if err == nil {
			fn(rec)
		}
		return err
	})
}

// A Progress is the progress of a Replay.
type Progress struct {
	sent   int    // handed to the producer
	Acked  int    // acknowledged, with every one before it
	LastID string // of the last of these
}

// Send sends the rows, at most rate per second unless it is 0, and returns when the broker has acknowledged all of them. It
// calls observe several times per second. When ctx ends, Send waits for the records in flight, for at most DrainTimeout,
// and returns the cause of ctx. The Progress is valid also with an error; rows after LastID may have been sent.
func (r *Replay) Send(ctx context.Context, rate int, observe func(Progress)) (Progress, error) {
	opening, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	reached, err := r.cfg.Sink.Open(opening, r.log)
	if err != nil {
		return Progress{}, err
	}
	defer func() { _ = reached.Close() }()
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.cfg.DrainTimeout, giveUp) })()

	s := &session{Replay: r, tracker: checkpoint.New(0, nil), acked: make(chan struct{}, 1), observe: observe}
	if err := s.tracker.Begin(1, time.Time{}); err != nil { // all rows are one transaction, which is never confirmed
		return Progress{}, err
	}
	err = sink.Deliver(hard, reached, sink.WriterConfig{}, 0, func(writing context.Context, w sink.Writer) error {
		sending, stop := context.WithCancelCause(writing)
		defer stop(nil)
		defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
		return s.sendRows(sending, w, rate)
	}, s.recordOutcome)
	s.updateProgress()
	if refused, ok := errors.AsType[*sink.RecordError](err); ok {
		err = &RowError{id: s.idOf(refused.Seq), reason: refused}
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return s.progress, err
}

// A session is one call of Send.
type session struct {
	*Replay
	tracker    *checkpoint.Tracker
	acked      chan struct{} // holds a token when something was acknowledged
	observe    func(Progress)
	observedAt time.Time

	progress Progress
	ids      []string // of the rows behind progress.Acked
	seqs     []checkpoint.Seq
}

// recordOutcome is the done function of the Writer's Run.
func (s *session) recordOutcome(seqs []uint64, err error) {
	if err != nil {
		return // Run returns it
	}
	s.seqs = s.seqs[:0]
	for _, seq := range seqs {
		s.seqs = append(s.seqs, checkpoint.Seq(seq))
	}
	_ = s.tracker.Ack(s.seqs...) // each exactly once: the writer's promise
	select {
	case s.acked <- struct{}{}:
	default:
	}
}

// sendRows sends every row.
func (s *session) sendRows(ctx context.Context, w sink.Writer, rate int) error {
	begun := time.Now()
	return s.Rows.Each(ctx, func(values [][]byte) error {
		if rate > 0 {
			if err := s.waitUntil(ctx, w, begun.Add(time.Duration(s.progress.sent)*time.Second/time.Duration(rate))); err != nil {
				return err
			}
		}
		if err := s.awaitAcks(ctx, w); err != nil {
			return err
		}
		rec, err := s.routeRow(values)
		if err != nil {
			return err
		}
		seq, err := s.tracker.Next(nil)
		if err != nil {
			return err
		}
		rec.Seq = uint64(seq)
		if err := w.Send(ctx, rec); err != nil {
			return err
		}
		s.ids = append(s.ids, string(values[s.id]))
		s.progress.sent++
		s.reportProgress()
		return nil
	})
}

// waitUntil waits until due. Buffered records are sent meanwhile.
func (s *session) waitUntil(ctx context.Context, w sink.Writer, due time.Time) error {
	left := time.Until(due)
	if left <= 0 {
		return nil
	}
	w.Flush()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitAcks waits until there are fewer than maxWindow records after the oldest unacknowledged one.
func (s *session) awaitAcks(ctx context.Context, w sink.Writer) error {
	for s.tracker.Window() >= maxWindow {
		w.Flush()
		select {
		case <-s.acked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// progressEvery is the minimum time between two calls of observe.
const progressEvery = 100 * time.Millisecond

func (s *session) reportProgress() {
	if now := time.Now(); now.Sub(s.observedAt) >= progressEvery {
		s.observedAt = now
		s.updateProgress()
		s.observe(s.progress)
	}
}

// updateProgress counts the acknowledged rows.
func (s *session) updateProgress() {
	_, acked, _ := s.tracker.OpenTransaction()
	if n := acked - s.progress.Acked; n > 0 {
		s.progress.LastID = s.ids[n-1]
		s.ids = slices.Delete(s.ids, 0, n)
		s.progress.Acked = acked
	}
}

// idOf returns the id of an unacknowledged row.
func (s *session) idOf(seq uint64) string {
	if i := int(seq) - 1 - s.progress.Acked; i >= 0 && i < len(s.ids) {
		return s.ids[i]
	}
	return ""
}
