package demo

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
)

// remember is how long the ledger keeps complete events: much longer than a duplicate needs to arrive, and short enough
// to limit the memory of a long demo.
const remember = 2 * time.Minute

// A row is an event, with the fields that its record must have.
type row struct {
	id      uuid.UUID
	topic   string
	key     string
	kind    string // header eventType
	version int    // counts the committed events of the key, from 1
	final   bool   // the last event of the key
}

type entry struct {
	row
	fate     delivery.Fate
	sent     time.Time // when COMMIT or ROLLBACK was sent
	received bool
}

// counts are the totals of the ledger.
type counts struct {
	transactions int // committed
	rows         int // committed
	rolledBack   int // rows
	records      int // received, including duplicates
	missing      int // rows committed but not received yet
	duplicates   int // records received before
	disordered   int // records, except duplicates, after a later one of the same key
	invented     int // records that belong to no committed row, or differ from it
}

// A ledger compares written rows with received records. Its methods may be called from any goroutine.
type ledger struct {
	checker *delivery.Checker

	mu      sync.Mutex
	rows    map[uuid.UUID]*entry
	newest  time.Time // when the COMMIT of a received row was sent, the latest one
	sum     counts    // of written rows
	latency histogram.Histogram
	recent  window
}

func newLedger() *ledger {
	return &ledger{checker: delivery.New(delivery.Config{}), rows: make(map[uuid.UUID]*entry)}
}

// enter adds the rows of a transaction just before it is committed or rolled back. If the connection fails during
// COMMIT, the rows may or may not be received. Latency is measured from this call.
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

// committed counts a committed transaction and its rows.
func (l *ledger) committed(rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.transactions++
	l.sum.rows += rows
}

// receive compares a record with the written rows, and returns its latency. ok is false unless it is the first record of
// a committed row.
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
	if e.sent.After(l.newest) {
		l.newest = e.sent
	}
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

// forgotten returns how to count a record without a known row: as a duplicate of an old row, or as unexpected.
func forgotten(got row, now time.Time) *delivery.Event {
	made := time.Unix(got.id.Time().UnixTime())
	if got.id.Version() != 7 || now.Sub(made) <= remember {
		return nil
	}
	e := got.event()
	e.Fate = delivery.Forgotten
	return e
}

// newestArrived returns when the COMMIT of a received row was sent, the latest one.
func (l *ledger) newestArrived() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// lost returns how many rows have not arrived although they were committed long before now.
func (l *ledger) lost(now time.Time, after time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.rows {
		if e.fate == delivery.Committed && !e.received && now.Sub(e.sent) > after {
			n++
		}
	}
	return n
}

// violations returns what the checker has found, with the duplicates.
func (l *ledger) violations() *delivery.Violations {
	all, repeated := l.checker.Violations(), l.checker.Repeated()
	all.First = append(all.First, repeated.First...)
	all.All += repeated.All
	return all
}

// restart drops the latencies so far, because the first records open connections and prepare statements.
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

// forget drops rows that were complete long before now.
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

// latencies returns the distributions since restart, and of the last seconds before now.
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

// advance clears the seconds that have started since the newest one.
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
