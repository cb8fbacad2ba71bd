package twin

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// refilledHeader is the header of a refilled record.
const refilledHeader = "refilled"

// xids has the transaction ids of the server.
type xids struct {
	last uint64
	open []*transaction // which have an id and are not committed
}

// xidsAfter returns the transaction ids of a server that has a log.
func xidsAfter(log []*transaction) (x xids) {
	for _, tx := range log {
		x.last = max(x.last, tx.xid)
	}
	return x
}

func (x *xids) assign() uint64 {
	x.last++
	return x.last
}

// snapshot returns pg_current_snapshot().
func (x *xids) snapshot() string {
	next := x.last + 1
	lowest := next
	var open []string
	for _, tx := range x.open {
		lowest = min(lowest, tx.xid)
		open = append(open, strconv.FormatUint(tx.xid, 10))
	}
	return fmt.Sprintf("%d:%d:%s", lowest, next, strings.Join(open, ","))
}

// visible is pg_visible_in_snapshot.
func visible(xid uint64, snapshot string) bool {
	bounds := strings.Split(snapshot, ":")
	next, err := strconv.ParseUint(bounds[1], 10, 64)
	return err == nil && xid < next && !slices.Contains(strings.Split(bounds[2], ","), strconv.FormatUint(xid, 10))
}

// begin starts a transaction with one row. The result commits it, unless the server has crashed meanwhile.
func (p *postgres) begin(insert func() *row) (commit func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != running {
		return func() {}
	}
	tx := &transaction{xid: p.xids.assign(), rows: []*row{insert()}}
	p.xids.open = append(p.xids.open, tx)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.xids.open, tx)
		if i < 0 || p.state != running {
			return
		}
		p.xids.open = slices.Delete(p.xids.open, i, i+1)
		p.write(tx)
	}
}

// An export is an exported snapshot. It is valid as long as the session that has exported it.
type export struct {
	by       *client
	snapshot string
}

// loseSlots drops the slot at random times until ctx ends.
func (w *world) loseSlots(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.seed, drawSlotLoss))
	for {
		w.sleep(ctx, time.Duration(rng.ExpFloat64()*float64(5*time.Second)))
		if ctx.Err() != nil {
			return
		}
		if w.history.canRefill() {
			w.postgres.loseSlot()
		}
	}
}

// loseSlot ends the stream and drops the slot.
func (p *postgres) loseSlot() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != running || p.slot.dropped {
		return
	}
	if owner := p.slot.owner; owner != nil {
		owner.terminate()
		p.own(nil)
	}
	p.drop()
}

// drop drops the slot. The caller must hold mu.
func (p *postgres) drop() {
	p.slot = slot{dropped: true}
	p.history.lostSlot()
	p.changed.Broadcast()
}

// dropSlot is pg_drop_replication_slot. A slot that is in use stays.
func (c *client) dropSlot([][]byte) [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot.user() == nil && !c.slot.dropped {
		c.drop()
	}
	return nil
}

var (
	createSlot     = regexp.MustCompile(`^CREATE_REPLICATION_SLOT (\S+) (TEMPORARY )?LOGICAL pgoutput EXPORT_SNAPSHOT$`)
	importSnapshot = regexp.MustCompile(`^SET TRANSACTION SNAPSHOT '(.*)'$`)
	selectRows     = regexp.MustCompile(`(?s)^SELECT .* FROM ONLY "?public"?\."?outbox"? WHERE (xid = |NOT ).*$`)
	ofTransaction  = regexp.MustCompile(`WHERE xid = '(\d+)'`)
	countRows      = regexp.MustCompile(`(?s)^SELECT pg_catalog\.count\(\*\) FROM \((.*)\) AS rows$`)
	inSnapshot     = regexp.MustCompile(`(NOT )?pg_catalog\.pg_visible_in_snapshot\(xid, +'([^']*)'`)
)

// refillQuery responds to a query of the simple protocol that a refill needs. answered is false if it is another one.
func (c *client) refillQuery(sql string) (answered, ok bool) {
	switch {
	case strings.HasPrefix(sql, "SELECT pg_catalog.pg_advisory_lock("):
		return true, c.lock()
	case strings.HasPrefix(sql, "BEGIN "):
		c.mu.Lock()
		c.snapshot = c.xids.snapshot()
		c.mu.Unlock()
	case strings.HasPrefix(sql, "SET search_path"), sql == "SELECT":
	case importSnapshot.MatchString(sql):
		if !c.importSnapshot(importSnapshot.FindStringSubmatch(sql)[1]) {
			return true, c.send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "22023", Message: "invalid snapshot identifier"}, ready())
		}
	case createSlot.MatchString(sql):
		m := createSlot.FindStringSubmatch(sql)
		return true, c.createSlot(m[1], m[2] != "")
	case selectRows.MatchString(sql) && strings.HasSuffix(sql, " LIMIT 1"):
		return true, c.rows(append([]column{{"xid", oidText}}, textColumns()...), c.newest(sql)...)
	case selectRows.MatchString(sql):
		return true, c.rows(textColumns(), c.table(sql)...)
	default:
		return false, false
	}
	return true, c.send(&pgproto3.CommandComplete{CommandTag: []byte("OK")}, ready())
}

func textColumns() []column {
	all := make([]column, len(columns))
	for i, name := range columns {
		all[i] = column{name, oidText}
	}
	return all
}

// lock waits for the advisory lock.
func (c *client) lock() bool {
	c.mu.Lock()
	failed := c.await(func() bool { return c.locked == nil })
	if failed == nil {
		c.locked = c
	}
	c.mu.Unlock()
	if failed != nil {
		return c.send(failed, ready())
	}
	return c.rows([]column{{"pg_advisory_lock", oidText}}, []string{""})
}

// await waits until free is true, and returns nil. It returns an error if the session's lock_timeout is over, or if the session or
// its statement is to end. The caller must hold mu.
func (c *client) await(free func() bool) *pgproto3.ErrorResponse {
	late := false
	if ms, _ := strconv.Atoi(c.settings["lock_timeout"]); ms > 0 {
		defer time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			late = true
			c.changed.Broadcast()
		}).Stop()
	}
	for !free() {
		switch {
		case c.gone, c.canceled:
			return &pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "canceling statement due to user request"}
		case late:
			return &pgproto3.ErrorResponse{Severity: "ERROR", Code: "55P03", Message: "canceling statement due to lock timeout"}
		}
		c.changed.Wait()
	}
	return nil
}

// cancel handles a cancel request.
func (p *postgres) cancel(pid uint32) {
	p.each(func(c *client) { c.canceled = c.canceled || c.pid == pid })
	p.changed.Broadcast()
}

// forget releases what the session has locked and exported. The caller must hold mu.
func (c *client) forget() {
	if c.locked == c {
		c.locked = nil
	}
	for name, e := range c.exports {
		if e.by == c {
			delete(c.exports, name)
		}
	}
}

func (c *client) importSnapshot(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.exports[name]
	if e != nil {
		c.snapshot = e.snapshot
	}
	return e != nil
}

// createSlot creates the slot, or a temporary one, when all transactions that are open now have ended.
func (c *client) createSlot(name string, temporary bool) bool {
	c.mu.Lock()
	if !temporary && !c.slot.missing() {
		c.mu.Unlock()
		return c.send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42710", Message: `replication slot "slot" already exists`}, ready())
	}
	if !temporary {
		c.slot.creator = c
	}
	open := slices.Clone(c.xids.open)
	failed := c.await(func() bool {
		return !slices.ContainsFunc(open, func(tx *transaction) bool { return slices.Contains(c.xids.open, tx) })
	})
	if c.slot.creator == c {
		c.slot.creator = nil
	}
	if failed != nil {
		c.mu.Unlock()
		return c.send(failed, ready())
	}
	point, exported := c.walEnd, fmt.Sprintf("%08X-1", len(c.exports)+1)
	c.exports[exported] = &export{c, c.xids.snapshot()}
	if !temporary {
		c.slot = slot{confirmed: point, saved: point}
		c.history.madeSlot(point)
	}
	created := c.created
	c.mu.Unlock()
	if created != nil && !temporary {
		created()
	}
	return c.rows([]column{{"slot_name", oidText}, {"consistent_point", oidText}, {"snapshot_name", oidText}, {"output_plugin", oidText}},
		[]string{strings.Trim(name, `"`), point.String(), exported, "pgoutput"})
}

// table returns the rows that a query selects, in the order of their positions.
func (c *client) table(sql string) (found [][]string) {
	var all []*row
	for _, tx := range c.selected(sql) {
		all = append(all, tx.rows...)
	}
	slices.SortFunc(all, func(a, b *row) int { return a.position - b.position })
	for _, r := range all {
		found = append(found, r.values())
	}
	return found
}

// newest returns the id of the last transaction with rows that a query selects, and one of these rows.
func (c *client) newest(sql string) [][]string {
	all := c.selected(sql)
	if len(all) == 0 {
		return nil
	}
	tx := slices.MaxFunc(all, func(a, b *transaction) int { return cmp.Compare(a.xid, b.xid) })
	return [][]string{append([]string{strconv.FormatUint(tx.xid, 10)}, tx.rows[0].values()...)}
}

func (c *client) selected(sql string) (all []*transaction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tx := range c.log {
		if len(tx.rows) > 0 && selects(sql, tx.xid) && visible(tx.xid, c.snapshot) {
			all = append(all, tx)
		}
	}
	return all
}

func (r *row) values() []string { return []string{r.id, r.topic, r.key, "Happened", r.value} }

// selects reports whether the conditions of a query are true for the rows of a transaction.
func selects(sql string, xid uint64) bool {
	if only := ofTransaction.FindStringSubmatch(sql); only != nil {
		return only[1] == strconv.FormatUint(xid, 10)
	}
	for _, condition := range inSnapshot.FindAllStringSubmatch(sql, -1) {
		if visible(xid, condition[2]) == (condition[1] != "") {
			return false
		}
	}
	return true
}

// A refill is what the history knows of lost slots. history.mu guards it.
type refill struct {
	pending   bool                  // the slot was lost, and not all rows that it had not delivered are stored
	point     pglogrepl.LSN         // where the new slot starts; 0: there is none
	delivered string                // the newest recorded snapshot; it shows which transactions were delivered
	snapshots []checkpoint.Snapshot // the recorded ones, the newest first; the server's timeline has them
	timeline  int32                 // of the record
	forks     []pglogrepl.LSN       // end of each earlier timeline
}

// done reports whether the slot has delivered everything before its position.
func (r *refill) done() bool { return !r.pending }

// mayRepeat reports whether a refill may resend the rows of a transaction.
func (r *refill) mayRepeat(tx *transaction) bool { return !visible(tx.xid, r.delivered) }

// recorded handles a position record.
func (r *refill) recorded(p *checkpoint.Position) {
	if p.Refill != nil {
		return
	}
	r.keep(p.Snapshots, p.Timeline)
	if r.point > 0 && p.EndLSN >= r.point {
		r.pending = false
	}
}

// keep sets the recorded snapshots. They are those of a timeline, which may be an older one, because a record may be stored late.
func (r *refill) keep(snapshots []checkpoint.Snapshot, timeline int32) {
	forks := r.forks[max(timeline, 1)-1:]
	r.snapshots, r.timeline, r.delivered = nil, timeline, ""
	for _, s := range snapshots {
		if !slices.ContainsFunc(forks, func(end pglogrepl.LSN) bool { return s.EndLSN > end }) {
			r.snapshots = append(r.snapshots, s)
		}
	}
	if len(r.snapshots) > 0 {
		r.delivered = r.snapshots[0].Text
	}
}

// promoted records that a promotion has lost everything after end.
func (r *refill) promoted(end pglogrepl.LSN) {
	r.forks = append(r.forks, end)
	r.keep(r.snapshots, r.timeline)
}

// mayPromote reports whether a standby may be promoted: if a slot was lost, its promotion may lose the snapshots that the refill
// needs, and the relay would stop. After a discard it may not either: what the promoted server has lost of the WAL is sent again, and
// so is the discarded row.
func (h *history) mayPromote() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refill.done() && (h.parked == nil || len(h.parked.discarded) == 0)
}

// canRefill reports whether the position record says which transactions were delivered.
func (h *history) canRefill() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refill.delivered != ""
}

// lostSlot records that the slot was dropped.
func (h *history) lostSlot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("postgres: the slot is dropped")
	h.refill.pending, h.refill.point = true, 0
}

// madeSlot records that a relay has created the slot.
func (h *history) madeSlot(point pglogrepl.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked("postgres: the slot is created at %s", point)
	h.refill.point, h.slot = point, point
}
