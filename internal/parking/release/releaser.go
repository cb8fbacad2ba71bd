package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// requestInterval is how often a Releaser reads the position topic for requests while keys are parked.
	requestInterval = time.Second

	// countInterval is how often the numbers of parked records are stored, if nothing else is.
	countInterval = 10 * time.Second

	// recordInterval is how often awaitRecorded reads the position record.
	recordInterval = 20 * time.Millisecond

	// settleTimeout limits how long a release waits for records in flight, and pauseTimeout how long it may pause
	// the pump.
	settleTimeout = 30 * time.Second
	pauseTimeout  = 5 * time.Second
)

// A Config is what a Releaser needs of an ownership.
type Config struct {
	Sink        sink.Broker   // of the dead letters and of what is released
	DeadLetters string        // their destination
	Timeout     time.Duration // for opening both
	Rows        rows.Config   // how dead letters become records again

	Set       *parking.Set
	Store     *position.Store // has the requests
	Keys      *position.ParkedKeys
	Record    *position.Record
	Positions *position.Writer // of Record
	Tracker   *checkpoint.Tracker

	Fence   func() error // returns an error while nothing may be sent
	Flush   func()       // has the ownership's writer send what waits
	Copying func() bool  // reports whether rows of tables are sent; then Turn cannot be taken

	// Turn is a mutex, a channel with capacity 1. It is held while rows are sent, so that a release can pause that.
	Turn chan struct{}

	Log *slog.Logger
}

// A Releaser handles the requests of operators to release parked keys. Release writes the dead letters of a key to
// their topic while the pump goes on, because new rows of the key follow to the dead-letter topic. Only for the last
// of them, and until the set without the key is stored, it pauses the pump. So no row of the key is sent in between.
//
// It has a Writer of its own. That one is not fenced by the broker, but no other Writer sends records of the key
// before the set without it is stored. If two processes release a key at the same time, each sends all of its records
// in order, so the first of each come in order.
type Releaser struct {
	cfg   Config
	acked chan struct{} // cap 1; records were acknowledged

	sent map[string]int // by request: records that were sent before the release had to wait

	countsStored time.Time
}

// New returns a Releaser for an ownership.
func New(cfg Config) *Releaser {
	return &Releaser{cfg: cfg, acked: make(chan struct{}, 1), sent: make(map[string]int)}
}

// SignalAck is called after records were acknowledged to the Tracker, from any goroutine. r may be nil.
func (r *Releaser) SignalAck() {
	if r == nil {
		return
	}
	select {
	case r.acked <- struct{}{}:
	default:
	}
}

// Run handles requests until ctx ends. An error is one after which the ownership cannot go on. r may be nil.
func (r *Releaser) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	ticker := time.NewTicker(requestInterval)
	defer ticker.Stop()
	for {
		if err := r.handleRequests(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // an error during a stop does not matter
			}
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// handleRequests handles the requests in the position topic, in the order in which they were filed. It does nothing after
// the fence has closed: later relays may have released the keys.
func (r *Releaser) handleRequests(ctx context.Context) error {
	if r.cfg.Set.Empty() && !r.cfg.Set.Pending(true) || r.isFenced() {
		return nil
	}
	if time.Since(r.countsStored) >= countInterval && r.cfg.Set.Pending(true) {
		if err := r.cfg.Keys.Store(ctx, true); err != nil {
			return err
		}
		r.countsStored = time.Now()
	}
	found, err := r.cfg.Store.Read(ctx)
	if err != nil {
		if isFinal(err) {
			return err
		}
		return nil // the next attempt may succeed
	}
	if r.isFenced() { // the process may have been suspended meanwhile
		return nil
	}
	if found.Parked == nil {
		if err := r.cfg.Keys.Restore(ctx); err != nil {
			return err
		}
	}
	for _, p := range r.cfg.Set.List() { // a request that waited may have been withdrawn
		if !slices.ContainsFunc(found.Requests, func(req parking.Request) bool { return req.Parking == p.ID }) {
			r.cfg.Set.Wait(p.ID, "")
		}
	}
	for i := range found.Requests {
		if err := r.handle(ctx, &found.Requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// isFinal reports whether the store cannot be read any more.
func isFinal(err error) bool {
	return slices.ContainsFunc([]error{position.ErrRecord, sink.ErrMissing, sink.ErrUnreachable, sink.ErrFatal}, func(final error) bool { return errors.Is(err, final) })
}

// isFenced reports whether the fence is closed.
func (r *Releaser) isFenced() bool { return r.cfg.Fence() != nil }

// handle handles a request, stores its result, and removes it. A request that has to wait stays filed.
func (r *Releaser) handle(ctx context.Context, req *parking.Request) error {
	if !r.hasResult(req.ID) {
		result, err := r.release(ctx, req)
		if waits, ok := errors.AsType[*releaseWaitsError](err); ok {
			return r.wait(ctx, req, waits)
		}
		if err != nil {
			return err
		}
		delete(r.sent, req.ID)
		if result.Outcome != parking.Released { // otherwise it is stored with the set without the key
			r.cfg.Set.Finish(result)
			if err := r.cfg.Keys.Store(ctx, true); err != nil {
				return err
			}
		}
		r.cfg.Log.InfoContext(ctx, "request for a parked key handled", slog.String("action", string(req.Action)),
			slog.String("request", req.ID), slog.String("outcome", string(result.Outcome)), slog.Int("released", result.Released), slog.String("reason", result.Reason))
	}
	return r.cfg.Store.Post(ctx, req.ID, nil)
}

// wait stores and logs why a request waits, if that is new.
func (r *Releaser) wait(ctx context.Context, req *parking.Request, waits *releaseWaitsError) error {
	if !r.cfg.Set.Wait(req.Parking, waits.Error()) {
		return nil
	}
	r.cfg.Log.WarnContext(ctx, "the release of a parked key waits", slog.String("request", req.ID), slog.String("reason", waits.Error()))
	return r.cfg.Keys.Store(ctx, true)
}

// hasResult reports whether a request has a result.
func (r *Releaser) hasResult(id string) bool {
	for _, result := range r.cfg.Set.Results() {
		if result.Request == id {
			return true
		}
	}
	return false
}

// release does what a request asks for. An error is one after which the ownership cannot go on.
func (r *Releaser) release(ctx context.Context, req *parking.Request) (parking.Result, error) {
	result := parking.Result{Request: req.ID, Outcome: parking.NoKey, At: time.Now().UTC()}
	parked, ok := r.cfg.Set.Find(req.Parking)
	if !ok {
		return result, nil
	}
	run := &releaseRun{Releaser: r, parking: parked, request: req, next: make(map[int32]int64), released: r.sent[req.ID]}
	err := run.run(ctx)
	result.Released, result.Dropped, result.At = run.released, run.dropped(), time.Now().UTC()
	if errors.As(err, new(*releaseWaitsError)) {
		r.sent[req.ID] = run.released
		return result, err
	}
	r.cfg.Set.Wait(req.Parking, "")
	if left, ok := r.cfg.Set.Find(req.Parking); ok {
		result.Left = left.Records
	}
	stopped, ok := errors.AsType[*releaseStoppedError](err)
	switch {
	case err == nil:
		result.Outcome = parking.Released
	case ctx.Err() != nil:
		return result, context.Cause(ctx)
	case ok:
		result.Outcome, result.Reason = parking.Stopped, stopped.Error()
		r.cfg.Set.Stop(req.Parking, stopped.row, stopped.reason.Error())
		if truncated, ok := errors.AsType[*rows.TruncatedError](err); ok {
			r.cfg.Set.Truncate(req.Parking, stopped.row, truncated.ID)
		}
	case errors.As(err, new(*unparkError)):
		return result, err
	default:
		result.Outcome, result.Reason = parking.Failed, err.Error()
		run.stayParked(result.Reason)
	}
	return result, nil
}

// A releaseStoppedError says which record stops a release: it cannot be delivered.
type releaseStoppedError struct {
	row    parking.Row
	reason error
}

// Error names the row and the reason.
func (e *releaseStoppedError) Error() string { return fmt.Sprintf("%s: %v", e.row, e.reason) }

// Unwrap returns the reason.
func (e *releaseStoppedError) Unwrap() error { return e.reason }

// A releaseWaitsError says that a release continues when reason is over.
type releaseWaitsError struct{ reason error }

// Error returns the reason.
func (e *releaseWaitsError) Error() string { return e.reason.Error() }

// Unwrap returns the reason.
func (e *releaseWaitsError) Unwrap() error { return e.reason }

// errCopyRuns: the pump cannot be paused while it reads rows from tables.
var errCopyRuns = errors.New("the initial copy or the refill is not finished")

// An unparkError says that the set could not be stored.
type unparkError struct{ error }

// Unwrap returns the error of the store.
func (e *unparkError) Unwrap() error { return e.error }

// awaitAcked waits until every record up to seq is acknowledged.
func (r *Releaser) awaitAcked(ctx context.Context, seq checkpoint.Seq, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !r.cfg.Tracker.AckedUpTo(seq) {
		r.cfg.Flush()
		select {
		case <-r.acked:
		case <-timer.C:
			return fmt.Errorf("%d records are unacknowledged for %s, and records of the key may be among them", r.cfg.Tracker.Outstanding(), limit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitRecorded waits until every record that has a number by now is acknowledged, and the position record covers their transactions,
// at most limit for each. It returns the place of the last row that the ownership has read, or an earlier one. After a crash, a
// relay reads none up to there again, but for rows of a transaction that is being read.
func (r *Releaser) awaitRecorded(ctx context.Context, limit time.Duration) (end encode.Place, err error) {
	newest, commitLSN, index := r.cfg.Tracker.Newest()
	if err := r.awaitAcked(ctx, newest, limit); err != nil {
		return end, err
	}
	confirmed, open := r.cfg.Tracker.Confirmed(), r.cfg.Tracker.Prefix()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ticker := time.NewTicker(recordInterval)
	defer ticker.Stop()
	for {
		if end, ok := r.cfg.Record.Covered(confirmed, open); ok {
			if read := (encode.Place{Generation: end.Generation, LSN: commitLSN, Index: index}); read.Compare(end) > 0 {
				return read, nil
			}
			return end, nil
		}
		r.cfg.Positions.Wake()
		select {
		case <-ticker.C:
		case <-timer.C:
			return end, fmt.Errorf("the relay has stored no position for %s, so a restart would read rows of the key again", limit)
		case <-ctx.Done():
			return end, context.Cause(ctx)
		}
	}
}

// pausePump waits until the pump is paused. It goes on when the result is called.
func (r *Releaser) pausePump(ctx context.Context) (resume func(), err error) {
	timer := time.NewTimer(settleTimeout)
	defer timer.Stop()
	select {
	case r.cfg.Turn <- struct{}{}:
		return func() { <-r.cfg.Turn }, nil
	case <-timer.C:
		return nil, fmt.Errorf("the relay has been waiting for the broker for %s", settleTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
