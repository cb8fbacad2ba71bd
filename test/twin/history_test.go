package twin

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A transaction is one of the log.
type transaction struct {
	commitLSN, endLSN pglogrepl.LSN
	rows              []*row
	message           string // of pg_logical_emit_message; "": none
	missing           int    // rows that no broker has stored yet
	timeline          int32  // of the server that committed it
}

// A row is one event.
type row struct {
	tx                    *transaction
	id, topic, key, value string
	order                 int      // in which the server sends rows
	poison                bool     // brokers do not take it
	writers               []writer // that have stored it

	event delivery.Event
}

// A writer is a producer of one run of the relay, between two renewals of its identity.
type writer struct {
	run      int
	producer int64
	epoch    int16
}

// A claim is one that a run has stored, with the identity of its producer.
type claim struct {
	run    int
	claim  int64
	from   pglogrepl.LSN // the position that its run starts at, if the timeline is still the same
	looked bool          // since then its run has read that it has the slot
	ID     int64         `json:"id"`
	First  int16         `json:"first_epoch"`
}

// A history judges everything that happens at the moment it happens. Methods may be called
// from any goroutine.
type history struct {
	mu         sync.Mutex
	began      time.Time
	events     []event
	violations []string

	transactions []*transaction
	whole        int // so many of them are stored completely, without a gap
	rows         map[string]*row
	gone         map[string]bool // ids of rows that no server has any more, and that no broker had by then
	keys         map[string]int  // rows committed, by topic and key
	checker      *delivery.Checker
	found        int // violations of the checker's that were noted

	claims  []*claim                       // in the order stored
	owners  map[[2]int64]int               // which run has stored under a producer id and epoch
	highest map[delivery.Coordinates]int64 // the highest claim that has stored, by partition
	lastRow map[shelf]int                  // the row that was stored last
	sent    map[int]map[pglogrepl.LSN]bool // positions that a run was sent on the present timeline

	tenures map[int][]tenure  // of the slot, by run
	holder  int               // the run that has the slot; 0: it is free
	free    time.Time         // since when
	calm    time.Time         // from then on the slot must not be free for long; zero: it may be
	deaf    map[int]time.Time // by run: from then on it has heard nothing for too long
	lease   time.Duration     // how long a run may take to notice that it has lost the slot

	kept       bool          // there are position records
	record     pglogrepl.LSN // the newest of the highest term
	term       int64         // its
	records    map[pglogrepl.LSN]bool
	recordOf   map[int]pglogrepl.LSN // by run
	slot       pglogrepl.LSN         // what the server knows to be confirmed
	confirmed  pglogrepl.LSN         // the highest position that was ever told
	timeline   int32                 // of the server
	starts     map[int]start         // by run
	deadLetter string                // the topic of dead letters; "": poison ends the relay
	forgetful  bool                  // a broker has forgotten a producer: batches may come twice
	lenient    bool                  // nothing is judged: somebody has lost rows
	gaps       int                   // that a relay has noticed since then

	updates int // status updates judged
}

// A start is how a run of the relay began.
type start struct {
	claims  int  // so many were stored when its newest session began
	streams bool // its first contact is over
}

// A shelf is where the rows of one writer lie.
type shelf struct {
	where delivery.Coordinates
	writer
}

// A tenure is a time in which a run has the slot.
type tenure struct{ from, to time.Time }

type event struct {
	at   time.Duration
	text string
	args []any
}

func newHistory() *history {
	return &history{
		began: time.Now(), timeline: 1, rows: make(map[string]*row), gone: make(map[string]bool), keys: make(map[string]int),
		checker: delivery.New(delivery.Config{AnyPartition: true}), // topics grow
		owners:  make(map[[2]int64]int), highest: make(map[delivery.Coordinates]int64), sent: make(map[int]map[pglogrepl.LSN]bool),
		records: make(map[pglogrepl.LSN]bool), recordOf: make(map[int]pglogrepl.LSN), starts: make(map[int]start),
		lastRow: make(map[shelf]int), tenures: make(map[int][]tenure), deaf: make(map[int]time.Time), free: time.Now(),
	}
}

// note adds a line to the history.
func (h *history) note(text string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(text, args...)
}

func (h *history) noteLocked(text string, args ...any) {
	h.events = append(h.events, event{time.Since(h.began), text, args})
}

// violated notes that something happened that must not.
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

// stopJudging has nothing count as a violation from now on.
func (h *history) stopJudging() { h.setLenient(true) }

// resumeJudging has violations count again.
func (h *history) resumeJudging() { h.setLenient(false) }

func (h *history) setLenient(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lenient = on
	if on {
		h.gaps = 0
	}
}

// noticeGap notes that a relay has noticed that rows may be missing.
func (h *history) noticeGap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps++
}

// noticed reports whether a relay has noticed a gap.
func (h *history) noticed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gaps > 0
}

// String is what happened, one line each.
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

// number returns the event that a row is. Dead letters come in any order.
func (h *history) number(r *row) delivery.Event {
	e := delivery.Event{Aggregate: r.topic + "/" + r.key, ID: r.id, Topic: r.topic, Key: r.key, Value: r.value}
	if r.poison && h.deadLetter != "" {
		e.Topic, e.Aggregate = h.deadLetter, h.deadLetter+"/"+r.id
	}
	h.keys[e.Aggregate]++
	e.Seq = int64(h.keys[e.Aggregate])
	return e
}

func (h *history) settle() {
	for h.whole < len(h.transactions) && h.transactions[h.whole].missing == 0 {
		h.whole++
	}
}

// launched notes that a run of the relay begins.
func (h *history) launched(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("run %d: begins, recorded is %s", run, h.record)
}

// started judges where a session begins.
func (h *history) started(run int, asked, slot pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("run %d: session from %s, slot at %s", run, asked, slot)
	h.safe(max(asked, slot), "run %d: a session from", run)
	s := h.starts[run]
	s.claims = len(h.claims)
	h.starts[run] = s
}

// held notes that a run has the slot from now on, 0 for none, and judges how long the slot was free.
func (h *history) held(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.holder == run {
		return
	}
	if ts := h.tenures[h.holder]; h.holder != 0 {
		ts[len(ts)-1].to = now
	}
	if run != 0 {
		h.judgeFree()
		h.tenures[run] = append(h.tenures[run], tenure{from: now})
	}
	h.holder, h.free = run, now
}

// holds reports whether a run has the slot.
func (h *history) holds(run int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder == run
}

// maxFree is how long the slot may be free while nothing is wrong with Postgres: a pause between two
// attempts, or a start of the relay, with what connections take.
const maxFree = 2500 * time.Millisecond

// judgeFree judges how long the slot has been free.
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

// calmFrom notes that from then on somebody has to have the slot.
func (h *history) calmFrom(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calm = t
}

// stormy notes that the slot may be free again, and judges whether it is.
func (h *history) stormy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judgeFree()
	h.calm = time.Time{}
}

// deafen notes that by then a run will have heard nothing for so long that it must not go on in its
// session.
func (h *history) deafen(run int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf[run] = at
}

// wrote judges when a run has written the last byte of a request that stores rows: the fence must have
// closed before.
func (h *history) wrote(run int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range slices.Backward(h.tenures[run]) {
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

// sentPosition notes that a run was sent a position that it may confirm.
func (h *history) sentPosition(run int, lsn pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent[run] == nil {
		h.sent[run] = make(map[pglogrepl.LSN]bool)
	}
	h.sent[run][lsn] = true
}

// wentBack notes that the server has forgotten what it knew behind lsn.
func (h *history) wentBack(lsn pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot = lsn
}

// promoted notes that the server is another one, which has the first kept transactions only: its log ends
// at end instead of before. What was told to the one before counts no further than that.
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
	for _, c := range h.claims {
		c.from = min(c.from, end)
	}
}

// loseLocked notes that no server has tx any more. The rows that a broker has stay the first of their keys,
// and later ones follow them. The others may only come from a run that read them before.
func (h *history) loseLocked(tx *transaction) {
	stored := 0
	for _, r := range tx.rows {
		if len(r.writers) > 0 {
			stored++
			continue
		}
		delete(h.rows, r.id)
		h.gone[r.id] = true
		h.keys[r.event.Aggregate]--
	}
	if len(tx.rows) > 0 {
		h.noteLocked("postgres: the transaction at %s is lost, %d of its %d rows are stored", tx.commitLSN, stored, len(tx.rows))
	}
}

// streaming notes that a run says that it streams, and judges whether it may under its claim.
func (h *history) streaming(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.starts[run]
	s.streams = true
	h.starts[run] = s
	var own int64
	for _, c := range h.claims {
		if c.run == run {
			own = c.claim
		}
	}
	for _, c := range h.claims[:s.claims] {
		if c.run != run && c.claim >= own {
			h.violatedLocked("run %d: streams under claim %d, and run %d has claim %d", run, own, c.run, c.claim)
		}
	}
}

// streamed reports whether a run has streamed.
func (h *history) streamed(run int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts[run].streams
}

// safe judges a position behind which the server does not send again what lies before.
func (h *history) safe(lsn pglogrepl.LSN, what string, args ...any) {
	if h.whole == len(h.transactions) {
		return
	}
	if tx := h.transactions[h.whole]; tx.commitLSN < lsn {
		h.violatedLocked("%s %s, while %d rows of the transaction at %s are not stored", fmt.Sprintf(what, args...), lsn, tx.missing, tx.commitLSN)
	}
}

// told judges a status update: last is the session's last one.
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
	h.safe(lsn, "run %d: confirms", run)
	h.slot, h.confirmed = max(h.slot, lsn), max(h.confirmed, lsn)
}

// recorded judges a position record that a broker has stored.
func (h *history) recorded(run int, key string, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(value) == 0 || !strings.Contains(key, "/") { // replaced by a claim
		h.noteLocked("run %d: record of %s removed", run, key)
		return
	}
	var p checkpoint.Position
	if err := p.UnmarshalJSON(value); err != nil {
		h.violatedLocked("run %d: position record %q: %v", run, value, err)
		return
	}
	h.noteLocked("run %d: record %s of term %d, claim %d on timeline %d stored", run, p.EndLSN, p.Term, p.Claim, p.Timeline)
	h.claimed(run, &p)
	h.judgeOpen(run, p.Open)
	if p.EndLSN == 0 {
		return // there is no position yet
	}
	if p.Term < h.term || p.Term == h.term && p.EndLSN < h.record || p.Timeline < h.timeline {
		return // written late: another run has the slot, or the server is another one
	}
	// While one run drains, another may have the slot: then the record may go back, but not
	// behind the slot.
	if p.EndLSN < h.recordOf[run] || p.EndLSN < h.slot {
		h.violatedLocked("run %d: record %s after %s, with the slot at %s", run, p.EndLSN, h.recordOf[run], h.slot)
	}
	h.recordOf[run] = p.EndLSN
	h.safe(p.EndLSN, "run %d: record", run)
	h.record, h.term = p.EndLSN, p.Term
	h.records[p.EndLSN] = true
}

// judgeOpen judges the part of a transaction that a record says is stored.
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

// claimed notes the claim of a record, if it is new.
func (h *history) claimed(run int, p *checkpoint.Position) {
	for _, c := range slices.Backward(h.claims) {
		if c.run == run {
			if p.Claim > c.claim {
				break
			}
			if p.Claim < c.claim && !h.forgetful { // the value of a run's own key goes back, and another run's counts
				h.violatedLocked("run %d: claim %d after %d", run, p.Claim, c.claim)
			}
			return
		}
	}
	c := &claim{run: run, claim: p.Claim}
	if p.Timeline == h.timeline {
		c.from = p.EndLSN
	}
	if err := json.Unmarshal(p.Identity, c); err != nil || p.Claim == 0 {
		h.violatedLocked("run %d: claim %d with identity %q: %v", run, p.Claim, p.Identity, err)
	}
	h.claims = append(h.claims, c)
}

// looked notes that a run has read that it has the slot.
func (h *history) looked(run int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.claims {
		if c.run == run {
			c.looked = true
		}
	}
}

// epochs are how many a claim has.
const epochs = 8

// judgeClaim judges who stores a record, and returns under which claim: the claims of a partition never
// fall, no two runs have the same identity, and whoever has the slot later has read the claim.
func (h *history) judgeClaim(w writer, where delivery.Coordinates) *claim {
	identity := [2]int64{w.producer, int64(w.epoch)}
	if run, ok := h.owners[identity]; ok && run != w.run {
		h.violatedLocked("run %d: stores under epoch %d of producer %d, as run %d did", w.run, w.epoch, w.producer, run)
	}
	h.owners[identity] = w.run
	if !h.kept || h.forgetful { // a broker that forgets a producer forgets its epoch
		return nil
	}
	for _, c := range slices.Backward(h.claims) {
		if c.run != w.run || c.ID != w.producer || w.epoch < c.First || w.epoch >= c.First+epochs {
			continue
		}
		if c.claim < h.highest[where] {
			h.violatedLocked("run %d: stores under claim %d behind claim %d", w.run, c.claim, h.highest[where])
		}
		if !c.looked {
			h.violatedLocked("run %d: stores under claim %d and has not looked whether it has the slot", w.run, c.claim)
		}
		h.highest[where] = c.claim
		return c
	}
	h.violatedLocked("run %d: stores without a claim of epoch %d of producer %d", w.run, w.epoch, w.producer)
	return nil
}

// judgeOrder judges the place of a row among those of its writer: they are in the order sent. Dead
// letters come in any order.
func (h *history) judgeOrder(w writer, where delivery.Coordinates, r *row) {
	at := shelf{where, w}
	if last := h.lastRow[at]; r.order <= last && where.Topic != h.deadLetter && !h.forgetful {
		h.violatedLocked("run %d: stores row %d, %s, behind row %d, under epoch %d", w.run, r.order, r.id, last, w.epoch)
	}
	h.lastRow[at] = r.order
}

// stored judges a record that a broker has stored.
func (h *history) stored(w writer, where delivery.Coordinates, r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run, partition := w.run, where
	partition.Offset = 0
	under := h.judgeClaim(w, partition)
	if h.gone[r.headers["id"]] {
		h.noteLocked("run %d: row %s is stored late, no server has it", run, r.headers["id"])
		return
	}
	var event *delivery.Event
	e := h.rows[r.headers["id"]]
	if e != nil {
		event = &e.event
	}
	outcome := h.checker.Record(&delivery.Record{Coordinates: where, Key: []byte(r.key), Value: []byte(r.value)}, event)
	for _, v := range h.checker.Violations().First[h.found:] {
		h.violatedLocked("run %d: %s", run, v.String())
		h.found++
	}
	if outcome == delivery.Refused {
		return
	}
	if under != nil && e.tx.endLSN <= under.from {
		h.violatedLocked("run %d: stores row %s of the transaction that ends at %s, although it began at %s", run, e.id, e.tx.endLSN, under.from)
	}
	h.judgeOrder(w, partition, e)
	if slices.Contains(e.writers, w) && !h.forgetful && e.tx.timeline == h.timeline {
		h.violatedLocked("run %d: stores row %s twice", run, e.id)
	}
	e.writers = append(e.writers, w)
	if !outcome.First() {
		h.noteLocked("run %d: row %s is stored again, by %v", run, e.id, e.writers)
		return
	}
	e.tx.missing--
	h.settle()
}

// isStored reports whether a broker has stored a row.
func (h *history) isStored(r *row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(r.writers) > 0
}

// sessions returns how many there were.
func (h *history) sessions() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ts := range h.tenures {
		n += len(ts)
	}
	return n
}

// left returns how many rows no broker has stored.
func (h *history) left() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rows) - h.checker.Counts().Events
}

// lost names the first rows that no broker has stored.
func (h *history) lost() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checker.Finish(delivery.UpTo(h.keys), math.MaxInt).String()
}

// recordedLSN returns the newest position record of the server's timeline, 0 if it has none.
func (h *history) recordedLSN() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.record
}

// confirmedEver returns the highest position that was told to any server.
func (h *history) confirmedEver() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed
}

// forget notes that batches may come twice from now on.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetful = true
}

// last returns where the newest transaction with rows ends.
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
