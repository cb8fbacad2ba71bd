package lane

import (
	"bytes"
	"hash/maphash"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A destination is a place to write to, and its lanes.
type destination struct {
	name     string
	illegal  string               // see Options.Illegal
	salt     uint64               // of the hashes of its lanes
	counters *destinationCounters // nil: nothing was written to it
	lanes    *lane                // list of all lanes
	only     *lane                // with Options.PerDestination
	records  int                  // of all lanes
	memory   int                  // of them

	missing missingState
	prober  *lane   // while the destination is missing: the lane that asks for it; the others are parked
	parked  []*lane // without those that are empty by now, and not in order

	rejectionLogged bool // that it is missing or denied
}

// A laneState says what a lane waits for.
type laneState uint8

const (
	busy    laneState = iota // has a request outstanding, or its outcome is being applied
	ready                    // is in Writer.ready
	delayed                  // is in Writer.delayed
	parked                   // is in destination.parked
)

// A lane is the records of a destination that are in order. It exists while it has records.
type lane struct {
	destination *destination
	hash        uint64
	chained     *lane // next in the table's bucket
	inTable     bool

	head, tail *entry
	state      laneState
	records    int // number of entries

	prev, next *lane // in destination.lanes
	nextReady  *lane
	heapIndex  int // in Writer.delayed

	retryState
}

// push appends e.
func (l *lane) push(e *entry) {
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.records++
}

// pushFront inserts e before all others.
func (l *lane) pushFront(e *entry) {
	e.next = l.head
	l.head = e
	if l.tail == nil {
		l.tail = e
	}
	l.records++
}

// pop removes the first entry.
func (l *lane) pop() *entry {
	e := l.head
	l.head = e.next
	if l.head == nil {
		l.tail = nil
	}
	e.next = nil
	l.records--
	return e
}

// sweep unlinks the removed entries and calls free for each.
func (l *lane) sweep(free func(*entry)) {
	entries := l.head
	l.head, l.tail, l.records = nil, nil, 0
	for e := entries; e != nil; {
		next := e.next
		e.next = nil
		if e.removed {
			free(e)
		} else {
			l.push(e)
		}
		e = next
	}
}

// A laneTable finds the lane of a key. A lane has the key of its first entry.
type laneTable struct {
	seed    maphash.Seed
	buckets []*lane // their number is a power of two
	lanes   int
}

const minBuckets = 64

func newLaneTable() laneTable {
	return laneTable{seed: maphash.MakeSeed(), buckets: make([]*lane, minBuckets)}
}

func (t *laneTable) hash(d *destination, key []byte) uint64 {
	return maphash.Bytes(t.seed, key) ^ d.salt
}

// find returns the lane of a key, or nil if there is none with records.
func (t *laneTable) find(d *destination, key []byte, hash uint64) *lane {
	for l := t.buckets[hash&uint64(len(t.buckets)-1)]; l != nil; l = l.chained {
		if l.hash == hash && l.destination == d && l.head != nil && bytes.Equal(l.head.record.Key, key) {
			return l
		}
	}
	return nil
}

// add adds a lane, whose hash is set.
func (t *laneTable) add(l *lane) {
	if t.lanes == len(t.buckets) {
		t.resize(2 * len(t.buckets))
	}
	t.link(l)
	l.inTable = true
	t.lanes++
}

func (t *laneTable) link(l *lane) {
	bucket := &t.buckets[l.hash&uint64(len(t.buckets)-1)]
	l.chained = *bucket
	*bucket = l
}

func (t *laneTable) remove(l *lane) {
	at := &t.buckets[l.hash&uint64(len(t.buckets)-1)]
	for *at != l {
		at = &(*at).chained
	}
	*at, l.chained, l.inTable = l.chained, nil, false
	t.lanes--
	if len(t.buckets) > minBuckets && t.lanes < len(t.buckets)/8 {
		t.resize(len(t.buckets) / 2)
	}
}

func (t *laneTable) resize(n int) {
	before := t.buckets
	t.buckets = make([]*lane, n)
	for _, l := range before {
		for l != nil {
			next := l.chained
			t.link(l)
			l = next
		}
	}
}

// laneQueue is a list of lanes with the state ready. Some may be empty by now.
type laneQueue struct{ head, tail *lane }

func (q *laneQueue) push(l *lane) {
	l.nextReady = nil
	if q.tail == nil {
		q.head = l
	} else {
		q.tail.nextReady = l
	}
	q.tail = l
}

func (q *laneQueue) pop() *lane {
	l := q.head
	q.head = l.nextReady
	if q.head == nil {
		q.tail = nil
	}
	l.nextReady = nil
	return l
}

// laneOf returns the lane for r, or nil if there is none yet, and its hash. w.mu is held.
func (w *Writer) laneOf(d *destination, r *sink.Record) (*lane, uint64) {
	switch {
	case w.options.PerDestination:
		return d.only, 0
	case r.Key == nil:
		return nil, 0
	}
	hash := w.table.hash(d, r.Key)
	return w.table.find(d, r.Key, hash), hash
}

// enqueue appends r to its lane, which may then send it. w.mu is held.
func (w *Writer) enqueue(r *sink.Record, payload int) {
	d := w.destinations[r.Topic]
	if d == nil {
		d = w.addDestination(r.Topic)
	}
	e := w.newEntry(d, r, payload)
	l, hash := w.laneOf(d, r)
	if l == nil {
		l = w.addLane(d)
		l.push(e)
		switch {
		case w.options.PerDestination:
			d.only = l
		case r.Key != nil:
			l.hash = hash
			w.table.add(l)
		}
		w.makeReady(l)
		return
	}
	l.push(e)
}

func (w *Writer) addDestination(name string) *destination {
	d := &destination{name: name, illegal: w.options.illegal(name), salt: maphash.String(w.table.seed, name), counters: w.base.counters(name)}
	w.destinations[name] = d
	return d
}

// addLane returns a new lane of d without records. w.mu is held.
func (w *Writer) addLane(d *destination) *lane {
	l := w.freeLanes
	if l == nil {
		l = new(lane)
	} else {
		w.freeLanes, l.next = l.next, nil
		w.freeLaneCount--
	}
	l.destination = d
	l.next = d.lanes
	if l.next != nil {
		l.next.prev = l
	}
	d.lanes = l
	return l
}

// maxFreeLanes limits the number of lanes that are kept for reuse.
const maxFreeLanes = 1 << 14

// failed notes a failed request of l, which started at start. w.mu is held.
func (w *Writer) failed(l *lane, cause error, start, now time.Time, limit time.Duration) {
	l.recordFailure(cause, start, now, limit)
	w.failing[l] = struct{}{}
}

// recovered notes that a request of l has succeeded. w.mu is held.
func (w *Writer) recovered(l *lane) {
	if l.attempts > 0 {
		l.retryState = retryState{}
		delete(w.failing, l)
	}
}

// makeReady lets a lane with records send. w.mu is held.
func (w *Writer) makeReady(l *lane) {
	l.state = ready
	w.ready.push(l)
}

// delay makes a lane wait until its retryAt. w.mu is held.
func (w *Writer) delay(l *lane) {
	l.state = delayed
	w.delayed.push(l)
}

// release lets a busy lane, whose request has no outcome to apply any more, send its next records. w.mu is held.
func (w *Writer) release(l *lane) {
	if l.head != nil {
		w.makeReady(l)
		return
	}
	w.leaveIfEmpty(l)
	w.recycle(l)
}

// leaveIfEmpty removes an empty lane from its destination. The caller that takes it out of its queue, or calls release,
// recycles it. w.mu is held.
func (w *Writer) leaveIfEmpty(l *lane) {
	if l.head != nil || l.destination == nil {
		return
	}
	d := l.destination
	if l.inTable {
		w.table.remove(l)
	}
	if d.only == l {
		d.only = nil
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		d.lanes = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next, l.destination = nil, nil, nil
	if d.prober == l {
		w.endProbe(d)
	}
	w.recovered(l)
	if d.lanes == nil && (d.counters == nil || len(w.destinations) > maxDestinations) {
		delete(w.destinations, d.name)
	}
	if l.state == delayed {
		w.delayed.remove(l)
		w.recycle(l)
	}
}

// recycle keeps a lane, which is in no list, for reuse. w.mu is held.
func (w *Writer) recycle(l *lane) {
	if w.freeLaneCount == maxFreeLanes {
		return
	}
	*l = lane{next: w.freeLanes}
	w.freeLanes = l
	w.freeLaneCount++
}
