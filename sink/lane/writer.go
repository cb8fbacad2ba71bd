package lane

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// Run wakes up when this many records or bytes were buffered since it has looked for requests, or at Flush. There
	// is no timer; records collect while requests are outstanding.
	flushRecords = 256
	flushBytes   = 64 << 10
)

// errEnded is what Send returns after Run has returned without an error of its own.
var errEnded = errors.New("writer has ended")

// A Writer is the [sink.Writer] over a [Transport].
type Writer struct {
	cfg       sink.WriterConfig
	options   Options
	transport Transport
	base      *Base
	log       *slog.Logger
	fence     func() error // Request.Fence

	wake        chan struct{} // cap 1; wakes Run
	wakeMonitor chan struct{} // cap 1; wakes monitor
	windowFreed chan struct{} // cap 1; wakes Send
	ended       chan struct{} // closed when Run returns
	outcomes    outcomes

	mu            sync.Mutex
	destinations  map[string]*destination
	table         laneTable
	ready         laneQueue
	delayed       laneHeap
	failing       map[*lane]struct{} // lanes with failed attempts
	freeLanes     *lane
	freeLaneCount int
	pool          entryPool

	inFlightRecords int // accepted by Send, without an outcome
	inFlightBytes   int // size of their keys, values and headers
	memory          int // what they take of the window

	missingRecords int // of inFlightRecords: for missing destinations
	missingMemory  int // of memory: for missing destinations

	gatheredRecords int // since Run has looked for requests
	gatheredBytes   int

	outstanding    int // requests without an outcome
	oldest, newest *flight
	landedAt       time.Time // when the last outcome was applied

	connection         retryState // attempts > 0: the broker cannot be reached
	connectionFailedAt time.Time  // the last failure that counts as an attempt

	sendClosed bool // CloseSend was called

	// failure ends the Writer. If halted is set, nothing more is sent; otherwise the records up to lastSeq are still
	// sent.
	failure  error
	halted   bool
	lastSeq  uint64              // records with a higher sequence that were never sent are dropped
	rejected []*sink.RecordError // Run reports them

	logLines        []func(context.Context) // written by monitor
	loggedStall     time.Time               // start of the logged stall; zero: none
	missingLoggedAt time.Time
	deniedLogged    bool // since the broker rejects the connection
	deniedLoggedAt  time.Time
}

// NewWriterOver returns a Writer of the Sink to which b belongs. Its Run closes t.
func (b *Base) NewWriterOver(t Transport, cfg sink.WriterConfig) *Writer {
	w := &Writer{
		cfg: cfg, options: b.options, transport: t, base: b, log: b.log,
		wake:         make(chan struct{}, 1),
		wakeMonitor:  make(chan struct{}, 1),
		windowFreed:  make(chan struct{}, 1),
		ended:        make(chan struct{}),
		destinations: make(map[string]*destination),
		table:        newLaneTable(),
		failing:      make(map[*lane]struct{}),
		lastSeq:      math.MaxUint64,
	}
	w.fence = w.requestFence
	w.pool.limit = w.options.WindowBytes + w.options.WindowBytes/16
	if cfg.MemoryChanged != nil {
		cfg.MemoryChanged(w.options.WindowBytes)
	}
	b.setWriter(w)
	return w
}

// Send implements [sink.Writer]. It copies r into its lane.
func (w *Writer) Send(ctx context.Context, r *sink.Record) error {
	payload := r.Size()
	w.mu.Lock()
	for {
		if err := w.sendError(); err != nil {
			w.mu.Unlock()
			return err
		}
		if w.fitsWindow(memoryOf(r, payload)) {
			break
		}
		w.mu.Unlock()
		signal(w.wake) // so that the records that fill the window leave
		select {
		case <-w.windowFreed:
		case <-w.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.mu.Lock()
	}
	if w.cfg.Divert != nil {
		if instead := w.cfg.Divert(r); instead != nil {
			instead.Seq = r.Seq
			r, payload = instead, instead.Size()
		}
	}
	w.enqueue(r, payload)
	w.gatheredRecords++
	w.gatheredBytes += payload
	enough := w.gatheredRecords >= flushRecords || w.gatheredBytes >= flushBytes
	w.mu.Unlock()
	if enough {
		signal(w.wake)
	}
	return nil
}

// sendError returns why Send accepts no more records, or nil. w.mu is held.
func (w *Writer) sendError() error {
	if w.failure != nil {
		return w.failure
	}
	select {
	case <-w.ended:
		return errEnded
	default:
		return nil
	}
}

// fitsWindow reports whether one more record fits into the window. Any record fits into an empty window. w.mu is held.
func (w *Writer) fitsWindow(memory int) bool {
	return w.inFlightRecords == 0 ||
		w.inFlightRecords < w.options.WindowRecords && w.memory+memory <= w.options.WindowBytes
}

// newEntry copies r, and counts it as in flight. w.mu is held.
func (w *Writer) newEntry(d *destination, r *sink.Record, payload int) *entry {
	e := w.pool.get(w.memory)
	e.set(r, payload)
	w.inFlightRecords++
	w.inFlightBytes += payload
	w.memory += e.memory
	d.records++
	d.memory += e.memory
	if d.missing.answers > 0 {
		w.missingRecords++
		w.missingMemory += e.memory
	}
	return e
}

// freeEntry releases the memory of an entry of d that is in no lane. w.mu is held.
func (w *Writer) freeEntry(d *destination, e *entry) {
	w.inFlightRecords--
	w.inFlightBytes -= e.payload
	w.memory -= e.memory
	d.records--
	d.memory -= e.memory
	if d.missing.answers > 0 {
		w.missingRecords--
		w.missingMemory -= e.memory
	}
	w.pool.put(e, w.memory)
}

// Flush implements [sink.Writer].
func (w *Writer) Flush() { signal(w.wake) }

// CloseSend implements [sink.Writer].
func (w *Writer) CloseSend() {
	w.mu.Lock()
	w.sendClosed = true
	w.mu.Unlock()
	signal(w.wake)
}

// logLater makes monitor write a log line, because writing may block. w.mu is held.
func (w *Writer) logLater(line func(context.Context)) {
	w.logLines = append(w.logLines, line)
	signal(w.wakeMonitor)
}
