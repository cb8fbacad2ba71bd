package position

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Recorder reads the position record from the Store, and writes it there as its owner. Without a store the record is kept in memory.
// Read, SetPublication and ProveOwner may be called from any goroutine, the others while Run of the [Writer] does not run.
type Recorder struct {
	store     *Store
	record    *Record
	writing   chan struct{}                       // cap 1; a mutex, with a context: held while the record is written
	written   atomic.Pointer[checkpoint.Position] // the newest record that this process has tried to write; nil: none
	published atomic.Pointer[string]              // see SetPublication; nil: not yet
}

// Read reads the store. If the store has lost the position record, the result has what this process has stored.
func (r *Recorder) Read(ctx context.Context) (*Found, error) {
	found, err := r.store.Read(ctx)
	r.record.addLost(found)
	return found, err
}

// becomeOwner makes this process the owner of the store, and returns what the store has then.
func (r *Recorder) becomeOwner(ctx context.Context) (*Found, error) {
	found, err := r.store.becomeOwner(ctx)
	r.record.addLost(found)
	return found, err
}

// SetPublication sets what the next records say about the publication: see [catalog.State.Published].
func (r *Recorder) SetPublication(published string) { r.published.Store(&published) }

// publication returns what the record after p says about the publication.
func (r *Recorder) publication(p *checkpoint.Position) string {
	if published := r.published.Load(); published != nil {
		return cmp.Or(*published, p.Publication)
	}
	return p.Publication
}

// ProveOwner writes the newest record again. The error wraps [sink.ErrSuperseded] if another process has become the owner.
func (r *Recorder) ProveOwner(ctx context.Context) error {
	unlock, err := lockWith(ctx, r.writing)
	if err != nil {
		return err
	}
	defer unlock()
	return r.replaceLocked(ctx, r.record.Next())
}

// The errors of OwnRecord if the record is not the one that was read. After either, this process is the owner.
var (
	// ErrReplaced means that another relay has become the owner since.
	ErrReplaced = errors.New("another relay has written the position record")

	// ErrWrittenLate means that a write of this process has arrived since, which had failed, because the broker was away. No
	// further one can arrive.
	ErrWrittenLate = errors.New("the last position of this relay has arrived late in the position store")
)

// OwnRecord makes this process the owner. It returns ErrReplaced or ErrWrittenLate if record is not the newest one.
func (r *Recorder) OwnRecord(ctx context.Context, record *checkpoint.Position) error {
	found, err := r.becomeOwner(ctx)
	if err != nil {
		return err
	}
	same := func(p, other *checkpoint.Position) bool { return other != nil && p.WrittenAt.Equal(other.WrittenAt) }
	switch p := found.Position; {
	case p == nil:
		return ErrReplaced
	case same(p, record):
		return nil
	case same(p, r.written.Load()):
		return ErrWrittenLate
	}
	return ErrReplaced
}

// BeginRefill writes the record of a refill of what record had not delivered, from a slot that was created on s at point. snapshot
// sees the rows of earlier transactions, and unpruned is for [checkpoint.Refill.Unpruned]. It is called after OwnRecord.
func (r *Recorder) BeginRefill(ctx context.Context, record checkpoint.Position, s checkpoint.Server, point pglogrepl.LSN, snapshot string, unpruned bool) error {
	p := record.BeginRefill(s, point, snapshot, unpruned)
	p.Publication = r.publication(&p)
	return r.replaceRecord(ctx, p)
}

// RecordStop adds to the record why the relay stops by itself. It is called after the last ownership. A process that has not become the
// owner writes nothing; the error wraps [sink.ErrSuperseded] if another one has become it since.
func (r *Recorder) RecordStop(ctx context.Context, stop checkpoint.Stop) error {
	unlock, err := lockWith(ctx, r.writing)
	if err != nil {
		return err
	}
	defer unlock()
	written := r.written.Load() // not an older one: that attempt may have succeeded without an answer
	if written == nil {
		return nil
	}
	p := *written
	p.Stopped = &stop
	return r.writeRecord(ctx, &p)
}

// replaceRecord writes p and makes it the current record.
func (r *Recorder) replaceRecord(ctx context.Context, p checkpoint.Position) error {
	unlock, err := lockWith(ctx, r.writing)
	if err != nil {
		return err
	}
	defer unlock()
	return r.replaceLocked(ctx, p)
}

// replaceLocked is replaceRecord. r.writing is locked.
func (r *Recorder) replaceLocked(ctx context.Context, p checkpoint.Position) error {
	if err := r.writeRecord(ctx, &p); err != nil {
		return err
	}
	r.record.setCurrent(p)
	return nil
}

// writeRecord writes p to the store, with the time.
func (r *Recorder) writeRecord(ctx context.Context, p *checkpoint.Position) error {
	p.WrittenAt = time.Now()
	if p.Began.IsZero() {
		p.Began = p.WrittenAt
	}
	if r.store.values == nil {
		return nil
	}
	r.written.Store(new(*p))
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := r.store.owner.Write(ctx, sink.PositionKey, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	return nil
}
