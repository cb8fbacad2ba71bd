package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config is the configuration of an audit.
type Config struct {
	// Relay is the relay's configuration. Name, Source.Conn, Route, Tables, Messages, Sink, Positions,
	// DeadLetterTopic and StartupTimeout count.
	Relay relay.Config
	Slot  string // of the relay, or of Debezium

	// Selection selects the rows of each table. Its Table is not used.
	Selection catalog.Selection
	// PrunedBefore is the time from which on no row was deleted. Zero: some minutes after the oldest row.
	PrunedBefore time.Time

	// Wait is how long the slot may take to confirm the rows, if a relay streams from it.
	Wait time.Duration
	// AssumeConfirmed: each selected row must have a record, even if the slot has not confirmed it.
	AssumeConfirmed bool

	// Missing is how many missing rows of each topic the report lists.
	Missing int

	// DeadLettersOptional: the relay sends none, so the user need not have the right to read those of earlier.
	DeadLettersOptional bool

	// Progress is called with the progress of the reading, several times a second. Optional.
	Progress func(doing string, done, total int)
}

// Run compares the tables with the topics. Differences are not an error. An error that wraps [catalog.ErrSelection] is
// about the selection, and one that wraps [replication.ErrAccess] or [sink.ErrAccess] about privileges. A
// *[encode.ColumnError] says that rows of a table cannot become records. An error that wraps [errors.ErrUnsupported]
// says that records cannot be read from the broker.
func Run(ctx context.Context, cfg Config, log *slog.Logger) (*Report, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string, int, int) {}
	}
	reader, err := sink.OpenReader(cfg.Relay.Sink, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	a := &auditor{cfg: cfg, log: log, reader: reader, began: time.Now()}
	for _, step := range []func(context.Context) error{a.readTables, a.awaitConfirmation, a.readTopics, a.compare} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return a.report(), nil
}

// An auditor is one call of Run.
type auditor struct {
	cfg   Config
	log   *slog.Logger
	began time.Time

	reader    sink.Reader
	ledger    *ledger
	read      catalog.SlotProgress
	confirmed Confirmed
	progress  catalog.SlotProgress // when the waiting ended
	findings  []Finding
	expected  map[uint64]expectation // of the rows of altered records, by the hash of their id
	notes     []string

	timed        bool // all tables have a column with the time of a row
	transactions bool // and one with its transaction

	reportedAt time.Time
}

// A table is one that is read.
type table struct {
	rows    *catalog.Rows
	router  *rows.TableRouter
	timeOf  func(values [][]byte) time.Time
	payload encode.ColumnNames
}

// openTables selects the rows of every table. The tables must be closed, also after an error.
func (a *auditor) openTables(ctx context.Context, sel catalog.Selection) (tables []*table, err error) {
	for _, name := range a.cfg.Relay.Tables {
		sel.Table, sel.Purpose = name, "audit"
		selected, err := catalog.Select(ctx, a.cfg.Relay.Source, sel)
		if err != nil {
			return tables, err
		}
		t := &table{rows: selected, timeOf: rows.TimeOf(selected.Table, selected.Time), payload: a.cfg.Relay.Route.Columns.Payload}
		tables = append(tables, t)
		router, err := a.cfg.Relay.Rows().NewRouter(ctx)
		if err != nil {
			return tables, err
		}
		if t.router, err = rows.NewTableRouter(router, selected.Table); err != nil {
			return tables, err
		}
	}
	return tables, nil
}

func closeTables(ctx context.Context, tables []*table) {
	for _, t := range tables {
		t.rows.Close(ctx)
	}
}

// each calls fn with the record of each row, in the order of the table, or with the reason why the row cannot become
// one. The record is valid until fn returns. Its timestamp is the time of the row, zero if it is not known. If it has no id, the header
// id is the result of standIn.
func (t *table) each(ctx context.Context, fn func(rec *sink.Record, xid uint64, rejected error)) error {
	return t.rows.Each(ctx, func(values [][]byte) error {
		rec, err := t.router.Route(encode.Tx{Timestamp: t.timeOf(values)}, 0, values)
		if err != nil && !rows.IsRefusal(err) {
			return err
		}
		var xid uint64
		if t.rows.XID >= 0 {
			xid = parseXID(values[t.rows.XID])
		}
		if err != nil && headerID(rec) == nil {
			t.setStandIn(rec, values)
		}
		fn(rec, xid, err)
		return nil
	})
}

// parseXID returns 0 if text is not a transaction id.
func parseXID(text []byte) uint64 {
	id, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// readTables reads the selected rows. It reads the end of the WAL after their snapshots are taken.
func (a *auditor) readTables(ctx context.Context) error {
	tables, err := a.openTables(ctx, a.cfg.Selection)
	defer func() { closeTables(ctx, tables) }()
	if err != nil {
		return err
	}
	if a.read, err = catalog.ReadSlotProgress(ctx, a.cfg.Relay.Source.Conn, a.cfg.Slot); err != nil {
		return err
	}
	total := 0
	a.timed, a.transactions = true, true
	for _, t := range tables {
		total += int(t.rows.Count)
		a.timed = a.timed && t.rows.Time != ""
		a.transactions = a.transactions && t.rows.XID >= 0
	}
	if total >= math.MaxUint32 {
		return errors.New("more than 4,294,967,295 rows are selected: select fewer")
	}
	a.ledger = newLedger(a.newRules(), int64(total))
	for i, t := range tables {
		a.ledger.ordered = a.ledger.ordered && t.rows.Order != ""
		err := t.each(ctx, func(rec *sink.Record, xid uint64, rejected error) {
			var flags uint8
			if rejected != nil {
				flags = unroutable
				if isStandIn(headerID(rec)) {
					flags |= withoutID
				}
				rec.Topic = a.cfg.Relay.DeadLetterTopic
			}
			a.ledger.addRow(rec, xid, flags)
			a.show("rows", len(a.ledger.rows), total)
		})
		a.ledger.endTable(a.cfg.Relay.Tables[i])
		if err != nil {
			return err
		}
	}
	a.ledger.indexRows()
	return a.ledger.tooMany
}

// newRules returns how records are judged.
func (a *auditor) newRules() rules {
	route := a.cfg.Relay.Route
	return rules{
		CommitTimes: len(route.Columns.Timestamp) == 0, PlacedPartition: route.PlacesPartition(),
		Since: a.cfg.Selection.Since, Until: a.cfg.Selection.Until, PrunedBefore: a.cfg.PrunedBefore,
		Missing: a.cfg.Missing,
	}
}

// compare judges the records, and looks for rows that were written since the tables were read.
func (a *auditor) compare(ctx context.Context) error {
	a.findings = a.ledger.judge()
	if recent := a.began.Add(-pruneSlack); len(a.ledger.candidates) > 0 && a.timed {
		// A record without a row is usually that of a new one.
		if err := a.findCandidates(ctx, catalog.Selection{Since: recent}); err != nil {
			return err
		}
	}
	if len(a.ledger.candidates) > 0 || slices.ContainsFunc(a.findings, func(f Finding) bool { return f.id != 0 }) {
		if err := a.findCandidates(ctx, catalog.Selection{}); err != nil {
			return err
		}
	}
	if err := a.explainAltered(ctx); err != nil {
		return err
	}
	a.findings = a.ledger.phantoms(a.findings)
	return nil
}

// findCandidates reads rows of the tables again. It drops the candidates that have a row, names the events of
// findings, and keeps what the rows of altered records say.
func (a *auditor) findCandidates(ctx context.Context, sel catalog.Selection) error {
	sel.ID, sel.Order, sel.AnyOrder, sel.Time = a.cfg.Selection.ID, a.cfg.Selection.Order, a.cfg.Selection.AnyOrder, a.cfg.Selection.Time
	wanted := make(map[uint64]string, len(a.ledger.candidates)+len(a.findings)) // empty: not found
	for _, c := range a.ledger.candidates {
		wanted[c.id] = ""
	}
	altered := make(map[uint64]bool)
	for _, f := range a.findings {
		wanted[f.id] = ""
		altered[f.id] = altered[f.id] || f.Kind == Altered
	}
	a.expected = make(map[uint64]expectation, len(altered))
	err := a.readAgain(ctx, sel, func(rec *sink.Record, rejected error) {
		id := headerID(rec)
		hash := a.ledger.hasher.ID(id)
		if _, ok := wanted[hash]; ok && id != nil {
			wanted[hash] = string(id)
		}
		if altered[hash] {
			a.expected[hash] = expectation{rows.Clone(*rec), rejected}
		}
	})
	if err != nil {
		return err
	}
	a.ledger.dropCandidates(func(id uint64) bool { return wanted[id] != "" })
	for i := range a.findings {
		if id := wanted[a.findings[i].id]; !isStandIn([]byte(id)) {
			a.findings[i].ID = id
		}
	}
	return nil
}

// readAgain calls fn with the record of each selected row, as table.each does.
func (a *auditor) readAgain(ctx context.Context, sel catalog.Selection, fn func(rec *sink.Record, rejected error)) error {
	tables, err := a.openTables(ctx, sel)
	defer func() { closeTables(ctx, tables) }()
	if err != nil {
		return err
	}
	done, total := 0, 0
	for _, t := range tables {
		total += int(t.rows.Count)
	}
	for _, t := range tables {
		err := t.each(ctx, func(rec *sink.Record, _ uint64, rejected error) {
			fn(rec, rejected)
			done++
			a.show("rows again", done, total)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// headerID returns the id of a record; nil if it has none.
func headerID(rec *sink.Record) []byte {
	for i := range rec.Headers {
		if rec.Headers[i].Key == encode.IDHeader {
			return rec.Headers[i].Value
		}
	}
	return nil
}

// showEvery is the shortest time between two calls of Progress.
const showEvery = 100 * time.Millisecond

func (a *auditor) show(doing string, done, total int) {
	if done%256 != 0 && done != total {
		return
	}
	if now := time.Now(); now.Sub(a.reportedAt) >= showEvery {
		a.reportedAt = now
		a.cfg.Progress(doing, done, total)
	}
}

// report returns the report of the audit.
func (a *auditor) report() *Report {
	r := &Report{
		Tables: a.cfg.Relay.Tables, Since: timeText(a.cfg.Selection.Since), Until: timeText(a.cfg.Selection.Until),
		Rows: len(a.ledger.rows), Confirmed: a.confirmed, Position: a.progress.Confirmed.String(), Ordered: a.ledger.ordered,
		Topics: []Topic{}, Findings: a.findings, Notes: append([]string{}, a.notes...), Took: time.Since(a.began).Seconds(),
	}
	for _, t := range a.ledger.topics {
		if t.Rows > 0 || t.Records > 0 {
			r.Topics = append(r.Topics, t.Topic)
		}
	}
	slices.SortFunc(r.Topics, func(x, y Topic) int { return strings.Compare(x.Name, y.Name) })
	sortFindings(r.Findings)
	if r.Rows == 0 {
		r.Notes = append(r.Notes, "no row is selected, so nothing was compared")
	}
	if !r.Ordered {
		r.Notes = append(r.Notes, "a table has no column with the order of insertion: the order of records is judged by their timestamps only (--order-by names a column)")
	}
	if a.ledger.byTable {
		r.Notes = append(r.Notes, "some keys have rows in several tables, and nothing says in which order these were committed: the order of their records is judged table by table")
	}
	if len(a.cfg.Relay.Messages) > 0 {
		r.Notes = append(r.Notes, "rows of outbox.messages are in no table: they are not audited")
	}
	if len(a.ledger.candidates) == maxCandidates {
		r.Notes = append(r.Notes, fmt.Sprintf("more than %d records may be phantoms: the others are counted as without a row", maxCandidates))
	}
	return r
}
