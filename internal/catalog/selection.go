package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// ErrSelection says that a Selection does not fit the table: the condition is not valid SQL, the table
// lacks a column, or an id is invalid or missing.
var ErrSelection = errors.New("selection is not possible")

// An AbsentError is an error of a table that has no row with any of the ids. It wraps ErrSelection.
type AbsentError struct{ err error }

// Error names the table and some of the ids.
func (e *AbsentError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *AbsentError) Unwrap() error { return e.err }

// A Selection selects rows of a table. They are ordered by Order, then by ID. Empty fields do not
// restrict the rows.
type Selection struct {
	Table string // as in SQL

	// ID, Order and Time are names of columns; the first one that the table has is used. ID identifies a row. Order
	// has the order of insertion. Time has a timestamp with or without time zone, which Since is compared with.
	ID, Order, Time []string

	Where string    // SQL condition; it runs with the privileges of the role
	IDs   []string  // ids of rows, all of which must exist
	Since time.Time // rows of this time or later
	Until time.Time // rows of an earlier time
	After string    // id of an existing row: rows after it, in the order above

	VisibleIn string // rows of transactions that are visible in this snapshot (xmin:xmax:xip_list)

	Limit int // maximum number of rows; 0: no limit

	Purpose  string // the end of application_name; empty: replay
	AnyOrder bool   // a table without any of the columns Order is read in the order of ID
}

// Rows are the selected rows of a table, in a snapshot taken by Select. They keep a read-only
// transaction open, so VACUUM cannot remove dead rows. One goroutine uses them, and the caller must
// close them.
type Rows struct {
	Table Table  // with the columns that the publication sends
	ID    string // the column of Selection.ID that is used
	Order string // the column of Selection.Order that is used; empty: ID, because the table has none
	Time  string // the column of Selection.Time that is used; empty: none
	Count int64  // number of rows
	XID   int    // index of the value of the column xid, if that is an xid8, of each row; -1: the table has none

	source   replication.Config
	conn     *pgconn.PgConn
	sel      Selection
	columns  map[string]Column // all columns, also those that are not sent
	read     []Column          // the columns of Table, and xid
	from     string
	where    []string
	args     []string
	maxBytes int
}

// Select opens the rows of sel. The role needs SELECT on the table, but not REPLICATION; Select uses no
// slot. The error wraps ErrSelection if sel does not fit the table, and ErrAccess if the role has no
// privilege.
func Select(ctx context.Context, cfg replication.Config, sel Selection) (*Rows, error) {
	cfg = cfg.WithDefaults()
	conn, err := connect(ctx, lasting(cfg.Conn, cmp.Or(sel.Purpose, "replay")))
	if err != nil {
		return nil, err
	}
	r := &Rows{source: cfg, conn: conn, sel: sel, columns: make(map[string]Column), maxBytes: cfg.MaxMessageBytes, XID: -1}
	for _, step := range []func(context.Context) error{r.beginReading, r.lookUp, r.narrow, r.count} {
		if err := step(ctx); err != nil {
			r.Close(ctx)
			return nil, err
		}
	}
	conn.Frontend().SetMaxBodyLen(r.maxBytes)
	return r, nil
}

// lasting returns a copy of conn for a connection that reads whole tables, in physical order. It appends purpose
// to the application_name.
func lasting(conn *pgconn.Config, purpose string) *pgconn.Config {
	settings := replication.Reading(conn)
	settings.RuntimeParams["application_name"] += " " + purpose
	settings.RuntimeParams["synchronize_seqscans"] = "off"
	settings.RuntimeParams["cursor_tuple_fraction"] = "1" // plans are for all rows
	settings.RuntimeParams["max_parallel_workers_per_gather"] = "0"
	return settings
}

// beginReading starts a read-only transaction with one snapshot.
func beginReading(ctx context.Context, conn *pgconn.PgConn) error {
	return execute(ctx, conn, "start a read-only transaction", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
}

func (r *Rows) beginReading(ctx context.Context) error { return beginReading(ctx, r.conn) }

// lookUp reads the definition of the table and finds the columns that the selection needs.
func (r *Rows) lookUp(ctx context.Context) error {
	o, err := findTable(ctx, r.conn, r.sel.Table, r.source.Publication, r.source.Conn.Database)
	if errors.Is(err, replication.ErrPublication) { // a missing table
		return fmt.Errorf("%w: table %s does not exist in database %q, or not in the role's search_path", ErrSelection, written(r.sel.Table), r.source.Conn.Database)
	}
	if err != nil {
		return err
	}
	if err := VerifyRows(ctx, r.conn, o.table().OID); err != nil {
		return err
	}
	if r.Table, err = readTable(ctx, r.conn, o, r.source.Publication); err != nil {
		return err
	}
	for _, c := range r.Table.Columns {
		r.columns[c.Name] = c
	}
	for _, c := range r.Table.Unsent {
		r.columns[c.Name] = c.Column
	}
	r.read = slices.Clone(r.Table.Columns)
	if xid := r.columns[xidColumn]; xid.TypeName == "xid8" {
		if r.XID = slices.Index(r.read, xid); r.XID < 0 {
			r.XID, r.read = len(r.read), append(r.read, xid)
		}
	}
	if r.ID = r.first(r.sel.ID, ""); r.ID == "" {
		return r.refuse("it has no column %s", strings.Join(r.sel.ID, " or "))
	}
	r.Order = r.first(r.sel.Order, "")
	r.Time = r.first(r.sel.Time, "timestamp")
	if r.Order == "" && !r.sel.AnyOrder {
		return r.refuse("it has none of the columns %s, which rows must be ordered by: name another one with --order-by", strings.Join(r.sel.Order, ", "))
	}
	r.from = r.Table.SQLName() // with the rows of its children by inheritance
	return nil
}

// first returns the first of names that is a column of the table with a type whose name starts with typ. It
// returns "" if there is none.
func (r *Rows) first(names []string, typ string) string {
	for _, name := range names {
		if c, ok := r.columns[name]; ok && strings.HasPrefix(c.TypeName, typ) {
			return name
		}
	}
	return ""
}

// narrow builds the WHERE clause of the selection.
func (r *Rows) narrow(ctx context.Context) error {
	if r.sel.Where != "" {
		r.where = append(r.where, "("+r.sel.Where+"\n)") // the newline ends a comment in the condition
	}
	if err := errors.Join(r.limitTime(">=", r.sel.Since), r.limitTime("<", r.sel.Until)); err != nil {
		return err
	}
	if len(r.sel.IDs) > 0 {
		if err := r.ids(ctx); err != nil {
			return err
		}
	}
	if r.sel.VisibleIn != "" {
		r.where = append(r.where, r.visibleIn(r.sel.VisibleIn))
	}
	if r.sel.After != "" {
		return r.after(ctx)
	}
	return nil
}

// visibleIn returns the condition that the transaction of a row is visible in a snapshot.
func (r *Rows) visibleIn(snapshot string) string {
	return "pg_catalog.pg_visible_in_snapshot(" + xidColumn + ", " + r.param(snapshot) + "::pg_catalog.pg_snapshot)"
}

// limitTime selects the rows whose time compares so with a moment, unless that is zero.
func (r *Rows) limitTime(operator string, moment time.Time) error {
	if moment.IsZero() {
		return nil
	}
	if r.Time == "" {
		return r.refuse("it has none of the columns %s with the time of a row: name it in outbox.columns.timestamp, or select rows with --where", strings.Join(r.sel.Time, ", "))
	}
	at := r.param(moment.UTC().Format(time.RFC3339Nano)) + "::timestamptz"
	if strings.HasSuffix(r.columns[r.Time].TypeName, "without time zone") {
		at = "(" + at + " AT TIME ZONE 'UTC')"
	}
	r.where = append(r.where, replication.QuoteIdent(r.Time)+" "+operator+" "+at)
	return nil
}

// shownIDs is the maximum number of missing ids in an error.
const shownIDs = 5

func (r *Rows) ids(ctx context.Context) error {
	typ := r.idType()
	list := arrayLiteral(r.sel.IDs)
	if _, err := r.ask(ctx, "read the ids", "SELECT pg_catalog.count(*) FROM pg_catalog.unnest($1::"+typ+"[])", list); err != nil {
		if err = r.refuseValue("an id is not a "+typ, err); errors.Is(err, ErrSelection) {
			err = &AbsentError{err}
		}
		return err
	}
	absent, err := r.ask(ctx, "look for the ids", fmt.Sprintf(`SELECT wanted::text FROM pg_catalog.unnest($1::%s[]) WITH ORDINALITY AS w(wanted, n)
		WHERE NOT EXISTS (SELECT FROM %s WHERE %s = wanted) ORDER BY n LIMIT %d`, typ, r.from, replication.QuoteIdent(r.ID), shownIDs+1), list)
	if err != nil {
		return r.refuseRight(err)
	}
	if len(absent) == 0 {
		r.where = append(r.where, replication.QuoteIdent(r.ID)+" = ANY ("+r.param(list)+"::"+typ+"[])")
		return nil
	}
	if len(absent) > shownIDs {
		absent[shownIDs] = "…"
	}
	refusal := r.refuse("it has no row with the id %s", strings.Join(absent, ", "))
	some, err := r.ask(ctx, "look for the ids", fmt.Sprintf("SELECT ''::text FROM %s WHERE %s = ANY ($1::%s[]) LIMIT 1", r.from, replication.QuoteIdent(r.ID), typ), list)
	if err == nil && len(some) == 0 {
		return &AbsentError{refusal}
	}
	return cmp.Or(err, refusal)
}

func (r *Rows) after(ctx context.Context) error {
	id, order, typ := replication.QuoteIdent(r.ID), replication.QuoteIdent(r.Order), r.idType()
	if _, err := r.ask(ctx, "read the id", "SELECT $1::"+typ, r.sel.After); err != nil {
		return r.refuseValue("the id is not a "+typ, err)
	}
	found, err := r.ask(ctx, "look for the row", fmt.Sprintf("SELECT ''::text FROM %s WHERE %s = $1::%s", r.from, id, typ), r.sel.After)
	if err != nil {
		return r.refuseRight(err)
	}
	if len(found) == 0 {
		return r.refuse("it no longer has a row with the id %s to continue after; select the remaining rows with a condition", r.sel.After)
	}
	r.where = append(r.where, fmt.Sprintf("(%s, %s) > (SELECT %[1]s, %[2]s FROM %[3]s WHERE %[2]s = %[4]s::%[5]s LIMIT 1)", order, id, r.from, r.param(r.sel.After), typ))
	return nil
}

// idType returns the type of the id column without its modifier, because a cast to varchar(36) would truncate
// an id.
func (r *Rows) idType() string {
	return regexp.MustCompile(`\([0-9, ]+\)`).ReplaceAllString(r.columns[r.ID].TypeName, "")
}

// param adds a parameter and returns its placeholder.
func (r *Rows) param(value string) string {
	r.args = append(r.args, value)
	return "$" + strconv.Itoa(len(r.args))
}

func (r *Rows) count(ctx context.Context) error {
	sql := "SELECT pg_catalog.count(*)::text FROM (SELECT 1" + r.clauses("") + ") AS selected"
	counted, err := r.ask(ctx, "count the rows", sql, r.args...)
	if err != nil {
		return r.refuseCondition(err)
	}
	r.Count, err = strconv.ParseInt(counted[0], 10, 64)
	return err
}

// clauses returns the rest of a SELECT after its list of columns.
func (r *Rows) clauses(order string) string {
	sql := " FROM " + r.from
	if len(r.where) > 0 {
		sql += " WHERE " + strings.Join(r.where, " AND ")
	}
	sql += order
	if r.sel.Limit > 0 {
		sql += " LIMIT " + strconv.Itoa(r.sel.Limit)
	}
	return sql
}

// Each calls fn with each row. values has the text of each of Table.Columns in the format of the stream, nil
// for NULL, and perhaps that of the column xid after them. It is valid until fn returns. Each needs memory for one row. It returns the error of fn, or an
// error that wraps ErrRow for a row larger than [replication.Config.MaxMessageBytes]. After an error the
// Rows can only be closed.
//
// Postgres looks names of a condition up as the role does, and prints names in values as the stream does. With a
// condition it prints them as the role does too, because a function of the condition may look names up for each row.
func (r *Rows) Each(ctx context.Context, fn func(values [][]byte) error) error {
	sql := "DECLARE selected NO SCROLL CURSOR FOR SELECT " + columnList(r.read) + r.clauses(" ORDER BY "+replication.QuoteIdent(cmp.Or(r.Order, r.ID))+", "+replication.QuoteIdent(r.ID))
	params := make([][]byte, len(r.args))
	for i, arg := range r.args {
		params[i] = []byte(arg)
	}
	// The extended protocol accepts only one statement, whatever the condition contains.
	if _, err := r.conn.ExecParams(ctx, sql, params, nil, nil, nil).Close(); err != nil {
		return r.refuseCondition(replication.QueryError(ctx, r.doing(), err))
	}
	if r.sel.Where == "" {
		if err := printNames(ctx, r.conn); err != nil {
			return err
		}
	}
	rows := r.conn.ExecParams(ctx, "FETCH ALL FROM selected", nil, nil, nil, nil)
	for rows.NextRow() {
		if err := fn(rows.Values()); err != nil {
			return err
		}
	}
	_, err := rows.Close()
	return r.refuseCondition(wrapRows(ctx, r.doing(), err, r.maxBytes))
}

func (r *Rows) doing() string { return fmt.Sprintf("read table %s.%s", r.Table.Schema, r.Table.Name) }

// Close ends the transaction and closes the connection, even if ctx has ended.
func (r *Rows) Close(ctx context.Context) { replication.Disconnect(ctx, r.conn) }

// ask runs a statement and returns the first column of its rows.
func (r *Rows) ask(ctx context.Context, doing, sql string, args ...string) ([]string, error) {
	return query(ctx, r.conn, func(row pgx.CollectableRow) (string, error) {
		return string(row.RawValues()[0]), nil
	}, doing, sql, args...)
}

func (r *Rows) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: table %s.%s: %s", ErrSelection, r.Table.Schema, r.Table.Name, fmt.Sprintf(format, args...))
}

// refuseValue returns an ErrSelection if err says that Postgres cannot parse a value, and otherwise err.
func (r *Rows) refuseValue(what string, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "22") {
		return r.refuse("%s: %s", what, pg.Message)
	}
	return err
}

// refuseRight returns an ErrAccess if err says that the role may not read the table, and otherwise err.
func (r *Rows) refuseRight(err error) error { return needSelect(r.conn, r.doing(), r.Table, err) }

// needSelect is refuseRight for any table, which was read on conn.
func needSelect(conn *pgconn.PgConn, doing string, t Table, err error) error {
	if sqlState(err) != insufficientPrivilege || replication.HidesRows(err) {
		return err
	}
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return fmt.Errorf("%w: %s: %w; use a role that may read the table, or if this is the right one: %s", replication.ErrAccess, doing, pg, t.GrantSelect(conn.ParameterStatus("session_authorization")))
}

// refuseCondition returns an ErrSelection if err, an error of a statement with the caller's condition, is about
// the condition. It includes Postgres' message only if that is about the text of the condition, because other
// messages may contain values of rows.
func (r *Rows) refuseCondition(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pg.Code == insufficientPrivilege:
		return r.refuseRight(err)
	case strings.HasPrefix(pg.Code, "42"), pg.Code == "08P01": // protocol_violation: it has a parameter
		return r.refuse("the condition: %s (SQLSTATE %s)", pg.Message, pg.Code)
	case strings.HasPrefix(pg.Code, "25"):
		return r.refuse("the condition must not write: %s (SQLSTATE %s)", pg.Message, pg.Code)
	case !replication.Classified(pg):
		return r.refuse("the condition fails for a row with SQLSTATE %s; the server log has the message", pg.Code)
	}
	return err
}

// arrayLiteral returns texts as an array literal: https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func arrayLiteral(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}
