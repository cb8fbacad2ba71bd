package twin

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
)

// A transaction is a committed transaction in the WAL.
type transaction struct {
	commitLSN, endLSN pglogrepl.LSN
	at                time.Time // of the commit
	rows              []*row
	message           string // of pg_logical_emit_message; "": none
	xid               uint64
	missing           int   // number of rows that no broker has stored yet
	timeline          int32 // timeline of the server that committed it
}

// A row is one event.
type row struct {
	tx                    *transaction
	id, topic, key, value string
	position              int      // in the table
	order                 int      // number in the order in which the server sends rows
	poison                bool     // brokers reject it
	parked                bool     // it is a dead letter of a parked key
	sent                  bool     // it was in its topic before its key was parked
	parking               string   // the id of the parking to which its last dead letter belongs
	writers               []writer // the writers that have written it

	event delivery.Event
}

// A writer is a producer of one run of the relay, between two renewals of its identity.
type writer struct {
	run      int
	producer int64
	epoch    int16
}

// A claim is the first record of an ownership that a run has written.
type claim struct {
	writer // the epoch is the first one

	ownership int64
	from      pglogrepl.LSN // the start position of its run; 0 if the position is of another timeline
	looked    bool          // since then its run has read that it holds the slot
}

// A history records the events of a simulation and checks each of them when it happens. Its methods
// are safe for concurrent use.
type history struct {
	mu         sync.Mutex
	began      time.Time
	events     []event
	violations []string

	transactions []*transaction
	whole        int // the first whole transactions are stored completely
	rows         map[string]*row
	gone         map[string]bool // ids of rows that a promotion has lost before a broker had stored them
	keys         map[string]int  // number of committed rows, by topic and key
	checker      judge
	parked       *parkedRows // nil: the relay parks no keys
	refill       refill

	claims  []*claim                       // in the order in which brokers stored them
	owners  map[[2]int64]int               // run that has written under a producer id and epoch
	highest map[delivery.Coordinates]int64 // the highest ownership of the records in a partition
	lastRow map[shelf]int                  // the row that was stored last
	sent    map[int]map[pglogrepl.LSN]bool // positions that the server has sent to a run, on the current timeline

	ownerships map[int][]ownership // of the slot, by run
	holder     int                 // the run that holds the slot; 0: it is free
	free       time.Time           // when the slot was released
	calm       time.Time           // from then on the slot must not be free for long; zero: it may be
	deaf       map[int]time.Time   // by run: from then on it must not continue, because Postgres has been silent for too long
	lease      time.Duration       // time in which a run must notice that it has lost the slot

	kept       bool          // the relay writes position records
	record     pglogrepl.LSN // the newest position record of the highest generation
	generation int64         // the highest generation
	records    map[pglogrepl.LSN]bool
	recordOf   map[int]pglogrepl.LSN         // by run
	slot       pglogrepl.LSN                 // the slot's confirmed position
	confirmed  pglogrepl.LSN                 // the highest position that a relay has ever confirmed
	timeline   int32                         // of the server
	starts     map[int]start                 // by run
	queue      *queueWriters                 // nil: the broker is Kafka
	deadLetter string                        // the dead-letter topic; "": a rejected row stops the relay
	forgetful  bool                          // a broker has forgotten a producer, so batches may be duplicated
	unmarked   map[delivery.Coordinates]bool // partitions that have got no marker in time
	grown      bool                          // a topic has more partitions, so the rows of a key may be in two of them
	lenient    bool                          // the history reports no violations, because a scene has lost rows
	gaps       int                           // number of gaps that relays have detected since then

	updates int // number of status updates

	reached atomic.Int64 // virtual time of the newest event, in nanoseconds; for the goroutine that detects that it stands still
	flooded atomic.Bool  // there are more than mostEvents
}

// A start describes the newest session of a run.
type start struct {
	asked   pglogrepl.LSN // the position at which its newest session began, at the earliest
	claims  int           // number of claims when that session began
	streams bool          // the run has streamed
	session bool          // that session streams
}

// A shelf identifies the rows of one writer in one partition.
type shelf struct {
	where delivery.Coordinates
	writer
}

// An ownership is a period in which a run holds the slot.
type ownership struct{ from, to time.Time }

type event struct {
	at   time.Duration
	text string
	args []any
}

func newHistory() *history {
	h := &history{
		began: time.Now(), timeline: 1, rows: make(map[string]*row), gone: make(map[string]bool), keys: make(map[string]int),
		owners: make(map[[2]int64]int), highest: make(map[delivery.Coordinates]int64), sent: make(map[int]map[pglogrepl.LSN]bool),
		records: make(map[pglogrepl.LSN]bool), recordOf: make(map[int]pglogrepl.LSN), starts: make(map[int]start),
		unmarked: make(map[delivery.Coordinates]bool), lastRow: make(map[shelf]int), ownerships: make(map[int][]ownership), deaf: make(map[int]time.Time), free: time.Now(),
	}
	h.checker.Checker = delivery.New(delivery.Config{AnyPartition: true, Missing: h.mayMiss}) // partitions are added to topics
	return h
}

// note adds a line to the history.
func (h *history) note(text string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(text, args...)
}

func (h *history) noteLocked(text string, args ...any) {
	at := time.Since(h.began)
	h.events = append(h.events, event{at, text, args})
	h.reached.Store(int64(at))
	h.flooded.Store(len(h.events) > mostEvents)
}

// mostEvents is far more than a seed has. A relay that repeats something without a pause would take all memory.
const mostEvents = 200_000

// violated reports a violation.
func (h *history) violated(text string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violatedLocked(text, args...)
}

func (h *history) violatedLocked(text string, args ...any) {
	if h.lenient {
		return
	}
	h.noteLocked("VIOLATION: "+text, args...)
	h.violations = append(h.violations, fmt.Sprintf("%s: ", time.Since(h.began))+fmt.Sprintf(text, args...))
}

// firstViolations returns the violations that a report shows, on one line.
func (h *history) firstViolations() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.violations[:min(maxShown, len(h.violations))], "; ")
}

// stopJudging makes the history ignore violations from now on.
func (h *history) stopJudging() { h.setLenient(true) }

// resumeJudging makes the history report violations again.
func (h *history) resumeJudging() { h.setLenient(false) }

func (h *history) setLenient(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lenient = on
	if on {
		h.gaps = 0
	}
}

// noticeGap records that a relay has detected that rows may be missing.
func (h *history) noticeGap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps++
}

// noticed reports whether a relay has detected a gap.
func (h *history) noticed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gaps > 0
}

// String returns the events, one per line.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, e := range h.events {
		fmt.Fprintf(&b, "%12s %s\n", e.at, fmt.Sprintf(e.text, e.args...))
	}
	return b.String()
}

// committed adds a transaction.
func (h *history) committed(tx *transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range tx.rows {
		h.rows[r.id] = r
		r.order = len(h.rows)
		r.event = h.number(r)
	}
	tx.missing, tx.timeline = len(tx.rows), h.timeline
	h.transactions = append(h.transactions, tx)
	h.settle()
	h.noteLocked("commit at %s to %s: %d rows %s", tx.commitLSN, tx.endLSN, len(tx.rows), tx.message)
}

// number returns the event of a row. Each dead letter is an aggregate of its own, because dead letters may
// be in any order.
func (h *history) number(r *row) delivery.Event {
	e := delivery.Event{Aggregate: r.topic + "/" + r.key, ID: r.id, Topic: r.topic, Key: r.key, Value: r.value}
	if r.poison && h.deadLetter != "" && h.parked == nil {
		e.Topic, e.Aggregate = h.deadLetter, h.deadLetter+"/"+r.id
	}
	h.keys[e.Aggregate]++
	e.Seq = int64(h.keys[e.Aggregate])
	if r.poison && h.parked != nil {
		h.parked.bad[place{e.Aggregate, e.Seq}] = r.id
	}
	return e
}

func (h *history) settle() {
	for h.whole < len(h.transactions) && h.transactions[h.whole].missing == 0 {
		h.whole++
	}
}

// launched records the start of a run of the relay.
func (h *history) launched(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("run %d: begins, recorded is %s", run, h.record)
}

// started checks the start position of a session.
func (h *history) started(run int, asked, slot pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("run %d: session from %s, slot at %s", run, asked, slot)
	if h.refill.done() {
		h.safe(max(asked, slot), "run %d: a session from", run)
	}
	s := h.starts[run]
	s.claims, s.session, s.asked = len(h.claims), false, asked
	h.starts[run] = s
}

// held records that a run holds the slot from now on, or none if run is 0. It checks how long the slot was
// free.
func (h *history) held(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.holder == run {
		return
	}
	if ts := h.ownerships[h.holder]; h.holder != 0 {
		ts[len(ts)-1].to = now
	}
	if run != 0 {
		h.judgeFree()
		h.ownerships[run] = append(h.ownerships[run], ownership{from: now})
	}
	h.holder, h.free = run, now
}

// holds reports whether a run holds the slot.
func (h *history) holds(run int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder == run
}

// maxFree is the longest time that the slot may be free while Postgres is healthy: the pause between two
// attempts or a start of the relay, and the time to connect.
const maxFree = 2500 * time.Millisecond

// judgeFree checks how long the slot has been free.
func (h *history) judgeFree() {
	if h.holder != 0 || h.calm.IsZero() {
		return
	}
	if free := time.Since(later(h.free, h.calm)); free > maxFree {
		h.violatedLocked("the slot was free for %s", free)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// calmFrom sets the time from which on the slot must not be free for long.
func (h *history) calmFrom(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calm = t
}

// stormy records that the slot may be free again. It first checks how long the slot has been free.
func (h *history) stormy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judgeFree()
	h.calm = time.Time{}
}

// deafen records that from the time at on, a run must not continue its session, because it has received
// nothing from Postgres for too long.
func (h *history) deafen(run int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf[run] = at
}

// wrote checks the time at which a run has written the last byte of a produce request with rows. If the
// run has lost the slot, its fence must close within lease.
func (h *history) wrote(run int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range slices.Backward(h.ownerships[run]) {
		if t.from.After(at) {
			continue
		}
		if deaf := h.deaf[run]; !deaf.IsZero() && t.from.Before(deaf) && at.After(deaf) {
			h.violatedLocked("run %d: sends rows although it has heard nothing of Postgres for too long", run)
		}
		if lost := at.Sub(t.to); !t.to.IsZero() && lost > h.lease {
			h.violatedLocked("run %d: sends rows %s after it has lost the slot", run, lost)
		}
		return
	}
	h.violatedLocked("run %d: sends rows and never had the slot", run)
}

// sentPosition records that the server has sent a position to a run, which may confirm it.
func (h *history) sentPosition(run int, lsn pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent[run] == nil {
		h.sent[run] = make(map[pglogrepl.LSN]bool)
	}
	h.sent[run][lsn] = true
}

// streams reports whether a run holds the slot and streams.
func (h *history) streams(run int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder == run && h.starts[run].session
}

// wentBack records that a crash has reset the slot to lsn.
func (h *history) wentBack(lsn pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot = lsn
}

// promoted records that a promoted standby has replaced the server. The standby has only the first kept
// transactions. Its WAL ends at end, that of the old server at before. Positions after end that a relay has
// confirmed or recorded are no longer valid.
func (h *history) promoted(timeline int32, kept int, before, end, slot pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("postgres: timeline %d begins at %s, the one before went to %s, slot at %s", timeline, end, before, slot)
	for _, tx := range h.transactions[kept:] {
		h.loseLocked(tx)
	}
	h.transactions = h.transactions[:kept]
	h.whole = min(h.whole, kept)
	h.timeline, h.slot, h.record = timeline, slot, min(h.record, end)
	behind := func(lsn pglogrepl.LSN, _ bool) bool { return lsn > end }
	maps.DeleteFunc(h.records, behind)
	for _, sent := range h.sent {
		maps.DeleteFunc(sent, behind)
		sent[end] = true
	}
	clear(h.recordOf)
	h.refill.promoted(end)
	for _, c := range h.claims {
		c.from = min(c.from, end)
	}
}

// loseLocked records that a promotion has lost tx. Rows that a broker has already stored stay in the
// history, and later rows of their keys follow them. The other rows can only come from a run that has read
// them before.
func (h *history) loseLocked(tx *transaction) {
	stored := 0
	for _, r := range tx.rows {
		if len(r.writers) > 0 {
			stored++
			h.parked.lose(r)
			continue
		}
		delete(h.rows, r.id)
		h.parked.forget(r)
		h.gone[r.id] = true
		h.keys[r.event.Aggregate]--
	}
	if len(tx.rows) > 0 {
		h.noteLocked("postgres: the transaction at %s is lost, %d of its %d rows are stored", tx.commitLSN, stored, len(tx.rows))
	}
}

// streaming records that a run has logged that it streams from a position. It checks that the server sends all that follows the
// position, and that no other run had an equal or higher ownership when the session began. A broker that forgets a producer accepts
// what an earlier owner writes.
func (h *history) streaming(run int, from pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.starts[run]
	if s.asked > from {
		h.violatedLocked("run %d: streams from %s in a session that began at %s", run, from, s.asked)
	}
	s.streams, s.session = true, true
	h.starts[run] = s
	var own int64
	for _, c := range h.claims {
		if c.run == run {
			own = c.ownership
		}
	}
	for _, c := range h.claims[:s.claims] {
		if c.run != run && c.ownership >= own && !h.forgetful {
			h.violatedLocked("run %d: streams in ownership %d, and run %d has ownership %d", run, own, c.run, c.ownership)
		}
	}
}

// streamed reports whether a run has streamed.
func (h *history) streamed(run int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts[run].streams
}

// safe checks a position. The server does not send transactions before it again, so they must be stored.
func (h *history) safe(lsn pglogrepl.LSN, what string, args ...any) {
	if h.whole == len(h.transactions) {
		return
	}
	if tx := h.transactions[h.whole]; tx.commitLSN < lsn {
		h.violatedLocked("%s %s, while %d rows of the transaction at %s are not stored", fmt.Sprintf(what, args...), lsn, tx.missing, tx.commitLSN)
	}
}

// told checks a status update. last is the highest position that the session has confirmed before.
func (h *history) told(run int, lsn, last pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updates++
	if lsn != last {
		h.noteLocked("run %d: confirms %s", run, lsn)
	}
	if lsn < last {
		h.violatedLocked("run %d: confirms %s after %s", run, lsn, last)
	}
	if lsn != 0 && !h.sent[run][lsn] && !h.records[lsn] {
		h.violatedLocked("run %d: confirms %s, which is neither the end of a transaction or keepalive it was sent nor was recorded", run, lsn)
	}
	if h.kept && lsn > h.record {
		h.violatedLocked("run %d: confirms %s, while %s is recorded", run, lsn, h.record)
	}
	if h.refill.done() || lsn > h.refill.point {
		h.safe(lsn, "run %d: confirms", run)
	}
	h.slot, h.confirmed = max(h.slot, lsn), max(h.confirmed, lsn)
}

// recorded checks a position record that a broker has stored.
func (h *history) recorded(w writer, key string, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run := w.run
	if len(value) == 0 { // of the check of the broker
		h.noteLocked("run %d: record of %s removed", run, key)
		return
	}
	if h.parked.recorded(h, run, key, value) {
		return
	}
	var p checkpoint.Position
	if err := p.UnmarshalJSON(value); err != nil {
		h.violatedLocked("run %d: position record %q: %v", run, value, err)
		return
	}
	h.noteLocked("run %d: record %s of generation %d, owner %d on timeline %d stored", run, p.EndLSN, p.Generation, p.Owner, p.Timeline)
	h.claimed(w, &p)
	h.refill.recorded(&p)
	h.judgeOpen(run, p.Open)
	if p.EndLSN == 0 {
		return // the record has no position yet
	}
	if p.Generation < h.generation || p.Generation == h.generation && p.EndLSN < h.record || p.Timeline < h.timeline {
		return // a late write: another run holds the slot, or a standby has been promoted
	}
	// While one run drains, another may hold the slot. The record may then go back, but not
	// to a position before that of the slot, unless it is the last one of a slot that another has replaced since.
	late := p.Generation == h.generation && h.record < h.refill.point && p.EndLSN < h.refill.point
	if p.EndLSN < h.recordOf[run] || p.EndLSN < h.slot && !late {
		h.violatedLocked("run %d: record %s after %s, with the slot at %s", run, p.EndLSN, h.recordOf[run], h.slot)
	}
	h.recordOf[run] = p.EndLSN
	if p.Refill == nil {
		h.safe(p.EndLSN, "run %d: record", run)
	}
	h.record, h.generation = p.EndLSN, p.Generation
	h.records[p.EndLSN] = true
}

// judgeOpen checks that the rows of an open transaction are stored if a position record covers them.
func (h *history) judgeOpen(run int, open checkpoint.Prefix) {
	for _, tx := range h.transactions {
		if open.Rows == 0 || tx.commitLSN != open.CommitLSN {
			continue
		}
		for _, r := range tx.rows[:open.Rows] {
			if len(r.writers) == 0 {
				h.violatedLocked("run %d: record of %d rows of the transaction at %s, while row %s is not stored", run, open.Rows, tx.commitLSN, r.id)
				return
			}
		}
	}
}

// claimed adds the claim of a position record, if it is new. Ownerships increase from claim to claim.
func (h *history) claimed(w writer, p *checkpoint.Position) {
	newest := &claim{}
	if n := len(h.claims); n > 0 {
		newest = h.claims[n-1]
	}
	switch {
	case newest.run == w.run && newest.ownership == p.Owner:
		return
	case p.Refill != nil && p.EndLSN == 0 && newest.ownership == p.Owner: // a refill is prepared, its ownership begins later
		return
	case p.Owner <= newest.ownership && !h.forgetful:
		h.violatedLocked("run %d: record of ownership %d after ownership %d of run %d", w.run, p.Owner, newest.ownership, newest.run)
	}
	c := &claim{writer: w, ownership: p.Owner}
	if p.Timeline == h.timeline {
		c.from = p.EndLSN
	}
	h.claims = append(h.claims, c)
}

// looked records that a run has read that it holds the slot.
func (h *history) looked(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.claims {
		if c.run == run {
			c.looked = true
		}
	}
}

// judgeClaim checks the writer of a record and returns its claim. The ownerships in a partition must not
// decrease, two runs must not have the same identity, and the run must have read after its claim that it
// holds the slot.
func (h *history) judgeClaim(w writer, where delivery.Coordinates) *claim {
	if h.queue != nil {
		return h.queue.judgeClaim(h, w)
	}
	identity := [2]int64{w.producer, int64(w.epoch)}
	if run, ok := h.owners[identity]; ok && run != w.run {
		h.violatedLocked("run %d: stores under epoch %d of producer %d, as run %d did", w.run, w.epoch, w.producer, run)
	}
	h.owners[identity] = w.run
	if !h.kept || h.forgetful { // a broker that forgets a producer forgets its epoch
		return nil
	}
	for _, c := range slices.Backward(h.claims) {
		if c.run != w.run || c.producer != w.producer || w.epoch < c.epoch {
			continue
		}
		if c.ownership < h.highest[where] {
			h.violatedLocked("run %d: stores in ownership %d behind ownership %d", w.run, c.ownership, h.highest[where])
		}
		if !c.looked {
			h.violatedLocked("run %d: stores in ownership %d and has not looked whether it has the slot", w.run, c.ownership)
		}
		h.highest[where] = c.ownership
		return c
	}
	h.violatedLocked("run %d: stores without a claim of epoch %d of producer %d", w.run, w.epoch, w.producer)
	return nil
}

// judgeOrder checks that the rows of a writer are in the order in which the server sent them. Dead letters
// may be in any order.
func (h *history) judgeOrder(w writer, where delivery.Coordinates, r *row) {
	at := shelf{where, w}
	if last := h.lastRow[at]; r.order <= last && where.Topic != h.deadLetter && !h.forgetful && h.queue == nil {
		h.violatedLocked("run %d: stores row %d, %s, behind row %d, under epoch %d", w.run, r.order, r.id, last, w.epoch)
	}
	h.lastRow[at] = r.order
}

// stored checks a record that a broker has stored.
func (h *history) stored(w writer, where delivery.Coordinates, r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run, partition := w.run, where
	partition.Offset = 0
	deadLetter, released, refilled := h.parked.takes(where.Topic), r.headers[rows.ResentFromHeader] != "", r.headers[refilledHeader] != ""
	var under *claim
	if !released { // a release has a producer of its own
		under = h.judgeClaim(w, partition)
	}
	if h.gone[r.headers["id"]] {
		h.noteLocked("run %d: row %s is stored late, no server has it", run, r.headers["id"])
		return
	}
	e := h.rows[r.headers["id"]]
	outcome := h.judgeRecord(run, deadLetter, &delivery.Record{Coordinates: where, Key: []byte(r.key), Value: []byte(r.value)}, e)
	if outcome == delivery.Refused {
		return
	}
	if under != nil && !refilled && e.tx.endLSN <= under.from {
		h.violatedLocked("run %d: stores row %s of the transaction that ends at %s, although it began at %s", run, e.id, e.tx.endLSN, under.from)
	}
	if !released && !refilled { // the checker judges the order of the first records
		h.judgeOrder(w, partition, e)
	}
	if slices.Contains(e.writers, w) && !released && !h.forgetful && h.queue == nil && e.tx.timeline == h.timeline {
		h.violatedLocked("run %d: stores row %s twice", run, e.id)
	}
	e.writers, e.parked, e.sent = append(e.writers, w), e.parked || deadLetter, e.sent || !deadLetter && !released
	if !deadLetter && !released && e.parking != "" {
		h.parked.ended[e.parking] = true
	}
	parking, _, _ := strings.Cut(r.headers[encode.DeadLetterParked], " ")
	if !outcome.First() {
		ended := deadLetter && (h.parked.ended[e.parking] || h.parked.ended[parking]) // a crash may delay dead letters until after the row
		if !h.mayRepeat(repeat{partition, e.parked, ended, refilled && h.refill.mayRepeat(e.tx)}) {
			h.violatedLocked("run %d: row %s is stored again at %v, by %v", run, e.id, where, e.writers)
		}
		h.noteLocked("run %d: row %s is stored again at %v, by %v", run, e.id, where, e.writers)
	}
	if deadLetter {
		e.parking = parking
	}
	if len(e.writers) == 1 {
		e.tx.missing--
		h.settle()
	}
}

// A judge is a checker, and the number of its violations that the history has reported.
type judge struct {
	*delivery.Checker

	reported int
}

// judgeRecord has the checker of the topic judge a record of a row. If r is nil, the record belongs to no row. After a crash or in a
// refill, a relay may repeat rows that were sent before their key was parked. They are dead letters then, behind those that followed them.
func (h *history) judgeRecord(run int, deadLetter bool, rec *delivery.Record, r *row) delivery.Outcome {
	var event *delivery.Event
	if r != nil {
		event = &r.event
	}
	j := &h.checker
	if deadLetter {
		j, event = &h.parked.deadLetters, deadLetterOf(event)
		if r != nil && r.sent {
			event.Fate = delivery.Forgotten
		}
	}
	outcome := j.Record(rec, event)
	for _, v := range j.Violations().First[j.reported:] {
		h.violatedLocked("run %d: %s", run, v.String())
		j.reported++
	}
	return outcome
}

// A repeat is a record of a row that is already stored.
type repeat struct {
	where    delivery.Coordinates // without the offset
	parked   bool                 // the row is a dead letter of a parked key
	ended    bool                 // the parking of this dead letter, or of the one before it, ended with a crash
	refilled bool                 // of a transaction that the newest snapshot does not show as delivered
}

// An allowance is a case in which docs/reliability.md allows that a row is stored again.
type allowance struct {
	name string
	fits func(*history, repeat) bool
}

var allowances = []allowance{
	{"there is no position record", func(h *history, _ repeat) bool { return !h.kept }},
	{"the broker recognizes no record that it has stored", func(h *history, _ repeat) bool { return h.queue != nil }},
	{"a broker has forgotten a producer", func(h *history, _ repeat) bool { return h.forgetful }},
	{"partitions were added", func(h *history, _ repeat) bool { return h.grown }},
	{"a partition has got no marker for 10 s", func(h *history, r repeat) bool { return h.unmarked[r.where] }},
	{"a release that was interrupted", func(h *history, r repeat) bool {
		return r.parked && r.where.Topic != h.deadLetter && h.sessionsLocked() > 1
	}},
	{"a broker stops rejecting a row while no relay runs, and a later row parks the key", func(h *history, r repeat) bool { return r.ended }},
	{"a row of a parked key, after a promotion", func(h *history, r repeat) bool { return r.parked && h.timeline > 1 }},
	{"a slot was lost", func(_ *history, r repeat) bool { return r.refilled }},
}

// mayRepeat reports whether one of the allowances fits.
func (h *history) mayRepeat(r repeat) bool {
	return slices.ContainsFunc(allowances, func(a allowance) bool { return a.fits(h, r) })
}

// missesMarker records that a relay has given up waiting for the marker of a partition, according to a line of its log.
func (h *history) missesMarker(line string) {
	var at delivery.Coordinates
	found := markerless.FindStringSubmatch(line)
	if found == nil {
		return
	}
	partition, _ := strconv.Atoi(found[2])
	at.Topic, at.Partition = found[1], int32(partition)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unmarked[at] = true
}

var markerless = regexp.MustCompile(`records of an earlier relay may be duplicated" .* topic=(\S+) partition=(\d+) .*CONCURRENT_TRANSACTIONS`)

// isStored reports whether a broker has stored a row.
func (h *history) isStored(r *row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(r.writers) > 0
}

// sessions returns the number of sessions so far.
func (h *history) sessions() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessionsLocked()
}

// sessionsLocked is sessions. h.mu is held.
func (h *history) sessionsLocked() (n int) {
	for _, ts := range h.ownerships {
		n += len(ts)
	}
	return n
}

// left returns the number of rows that no broker has stored.
func (h *history) left() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, tx := range h.transactions[h.whole:] {
		n += tx.missing
	}
	return n
}

// lost describes the first rows that no broker has stored.
func (h *history) lost() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checker.Finish(delivery.UpTo(h.keys), math.MaxInt).String()
}

// recordedLSN returns the newest position record on the server's timeline, or 0 if there is none.
func (h *history) recordedLSN() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.record
}

// confirmedEver returns the highest position that a relay has confirmed to any server.
func (h *history) confirmedEver() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed
}

// forget records that batches may be duplicated from now on.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetful = true
}

// grow records that a topic has more partitions.
func (h *history) grow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grown = true
}

// last returns the end LSN of the newest transaction with rows.
func (h *history) last() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, tx := range slices.Backward(h.transactions) {
		if len(tx.rows) > 0 {
			return tx.endLSN
		}
	}
	return 0
}
