package demo

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
)

// remember is how long the ledger keeps what is settled. It is far longer than any repeat takes to
// come, and keeps a demo that is left running small.
const remember = 2 * time.Minute

// A row is one event as its record must look.
type row struct {
	id      uuid.UUID
	topic   string
	key     string
	kind    string // header eventType
	version int    // counts the committed events of the key, from 1
	final   bool   // the key's last event
}

type entry struct {
	row
	fate     delivery.Fate
	sent     time.Time // when COMMIT or ROLLBACK was
	received bool
}

// counts is what the ledger adds up to.
type counts struct {
	transactions int // committed
	rows         int // committed
	rolledBack   int // rows
	records      int // received, repeats included
	missing      int // rows committed and not received (yet)
	duplicates   int // records received before
	disordered   int // first appearances after a later one of the same key
	invented     int // records that belong to no committed row, or differ from it
}

// A ledger holds what was written against what was received. Its methods may be called from any
// goroutine.
type ledger struct {
	checker *delivery.Checker

	mu      sync.Mutex
	rows    map[uuid.UUID]*entry
	sum     counts // of what was written
	latency histogram.Histogram
	recent  window
}

func newLedger() *ledger {
	return &ledger{checker: delivery.New(delivery.Config{}), rows: make(map[uuid.UUID]*entry)}
}

// enter records rows whose transaction is about to end, in a commit or a rollback. If the connection fails
// under COMMIT, they may be received or not. The moment is part of the measurement.
func (l *ledger) enter(f delivery.Fate, rows ...row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f == delivery.RolledBack {
		l.sum.rolledBack += len(rows)
	}
	now := time.Now()
	for _, r := range rows {
		l.rows[r.id] = &entry{row: r, fate: f, sent: now}
	}
}

// committed records that a transaction with so many rows is committed.
func (l *ledger) committed(rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.transactions++
	l.sum.rows += rows
}

// receive compares one record with what was written and returns how long it took to come; ok is
// false unless it is the first of a committed row.
func (l *ledger) receive(got row, where delivery.Coordinates, now time.Time) (took time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record := delivery.Record{Coordinates: where, Key: []byte(got.key), Headers: headers(got.kind)}
	e := l.rows[got.id]
	if e == nil {
		l.checker.Record(&record, forgotten(got, now))
		return 0, false
	}
	event := e.event()
	event.Fate = e.fate
	if !l.checker.Record(&record, event).First() {
		return 0, false
	}
	e.received = true
	took = now.Sub(e.sent)
	l.latency.Record(took)
	l.recent.record(took, now)
	return took, true
}

func headers(kind string) []delivery.Header {
	return []delivery.Header{{Key: "eventType", Value: kind}}
}

func (r row) aggregate() string { return r.topic + "/" + r.key }

func (r row) event() *delivery.Event {
	return &delivery.Event{
		Aggregate: r.aggregate(), Seq: int64(r.version), ID: r.id.String(),
		Topic: r.topic, Key: r.key, Headers: headers(r.kind),
	}
}

// forgotten returns what a record of no known row is of: an event so old that it was forgotten, or
// none.
func forgotten(got row, now time.Time) *delivery.Event {
	made := time.Unix(got.id.Time().UnixTime())
	if got.id.Version() != 7 || now.Sub(made) <= remember {
		return nil
	}
	e := got.event()
	e.Fate = delivery.Forgotten
	return e
}

// restart forgets the latencies so far: those of the first records, which open connections and
// prepare statements.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency, l.recent = histogram.Histogram{}, window{}
}

func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum, seen := l.sum, l.checker.Counts()
	sum.records, sum.duplicates, sum.disordered = seen.Records, seen.Duplicates, seen.OutOfOrder+seen.Misplaced
	sum.invented = seen.Phantoms + seen.Altered
	sum.missing = max(0, sum.rows-seen.Events)
	return sum
}

// forget drops what was settled long before now.
func (l *ledger) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.rows {
		if now.Sub(e.sent) <= remember || !e.received && e.fate != delivery.RolledBack {
			continue
		}
		delete(l.rows, id)
		if e.final {
			l.checker.Forget(e.aggregate())
		}
	}
}

// latencies returns the distribution of everything since restart, and of the last few seconds
// before now.
func (l *ledger) latencies(now time.Time) (all, recent *histogram.Histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.latency
	return &sum, l.recent.sum(now)
}

// A window is a histogram of the current second and the windowSeconds before it.
type window struct {
	seconds [windowSeconds + 1]histogram.Histogram
	newest  int64 // Unix time
}

const windowSeconds = 5

func (w *window) record(d time.Duration, now time.Time) {
	w.advance(now.Unix())
	w.seconds[w.newest%int64(len(w.seconds))].Record(d)
}

// advance clears the seconds that have begun since the newest one.
func (w *window) advance(second int64) {
	for range min(second-w.newest, int64(len(w.seconds))) {
		w.newest++
		w.seconds[w.newest%int64(len(w.seconds))] = histogram.Histogram{}
	}
	w.newest = max(w.newest, second)
}

func (w *window) sum(now time.Time) *histogram.Histogram {
	w.advance(now.Unix())
	var all histogram.Histogram
	for i := range w.seconds {
		all.Add(&w.seconds[i])
	}
	return &all
}
