package outbox

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// defaultWriter serves the package-level functions.
//
//nolint:gochecknoglobals // never changes after initialization
var defaultWriter = newWriter(Config{}.withDefaults())

// Write inserts events in tx, into the table outbox of tx's search_path. They are published if and
// only if tx commits.
//
// It is one statement and one round trip however many events there are, and the events keep their
// order. From 500 events on, where that is faster, the statement is COPY, with two. (On a
// connection's first use of a statement pgx prepares it, in one more.) All events are checked before
// anything is sent: the first problem is returned as an [*EventError], with nothing written and tx
// still usable. After any other error tx is aborted, as after every failed statement: roll it back.
// See [ErrNoTable], [ErrOldTable] and [ErrAborted].
//
// The role needs INSERT on the table, and nothing else. COPY does not know row-level security: with
// policies for the role, write fewer at a time.
//
// Write does not retain the events or the bytes in them. Without events it does nothing.
func Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Write(ctx, tx, events...)
}

// WriteSQL is [Write] for database/sql, with any driver for Postgres, and so for what is built on
// it: sqlx, GORM, ent, bun. It is one statement however many events there are, without parameters
// of other types than text and bytes.
func WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.WriteSQL(ctx, tx, events...)
}

// A Writer writes as its Config says. It is immutable, so one Writer serves any number of goroutines.
type Writer struct {
	cfg       Config
	columns   []column
	one, many string // SQL, the same text every time: pgx caches prepared statements by it
}

// NewWriter returns a Writer for cfg. It does not look at the database.
func NewWriter(cfg Config) (*Writer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newWriter(cfg), nil
}

// newWriter returns a Writer for cfg, which is valid and complete.
func newWriter(cfg Config) *Writer {
	w := &Writer{cfg: cfg, columns: cfg.columns()}
	w.one, w.many = cfg.statements(w.columns)
	return w
}

// Write does what the function of that name does, as w's Config says.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	rows, err := w.rows(ctx, w.cfg.PayloadType, events)
	switch {
	case err != nil || len(rows) == 0:
		return err
	case len(rows) >= copyFrom:
		return explain(len(rows), w.copy(ctx, tx, rows))
	}
	return explain(len(rows), w.insert(ctx, pgxExec(tx), rows))
}

// WriteSQL does what the function of that name does, as w's Config says.
func (w *Writer) WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	rows, err := w.rows(ctx, w.cfg.PayloadType, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	return explain(len(rows), w.insert(ctx, sqlExec(tx), rows))
}

// rows checks events and returns them as they are written, where payloadType holds the payload.
func (w *Writer) rows(ctx context.Context, payloadType PayloadType, events []Event) ([]row, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var trace map[string]string
	if w.cfg.Trace != nil {
		trace = w.cfg.Trace(ctx)
		if problem := headersProblem("Trace", trace); problem != nil {
			return nil, problem
		}
	}
	rows := make([]row, len(events))
	for i := range events {
		var problem *EventError
		if rows[i], problem = events[i].row(&w.cfg, payloadType, trace); problem != nil {
			problem.Index = i
			return nil, problem
		}
	}
	return rows, nil
}

// insert writes rows by one statement.
func (w *Writer) insert(ctx context.Context, exec exec, rows []row) error {
	args := make([]any, len(w.columns))
	if len(rows) == 1 {
		for i, c := range w.columns {
			args[i] = c.value(&rows[0])
		}
		return exec(ctx, w.one, args...)
	}
	for i, c := range w.columns {
		args[i] = array(rows, c.value)
	}
	return exec(ctx, w.many, args...)
}

// copyFrom is from how many events on COPY is faster, although it takes more round trips.
const copyFrom = 500

// copy writes rows by COPY.
func (w *Writer) copy(ctx context.Context, tx pgx.Tx, rows []row) error {
	names := make([]string, len(w.columns))
	for i, c := range w.columns {
		names[i] = c.name
	}
	values := make([]any, len(w.columns))
	_, err := tx.CopyFrom(ctx, w.cfg.Table, names, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		for j, c := range w.columns {
			values[j] = c.value(&rows[i])
		}
		return values, nil
	}))
	return err
}

// An exec runs a statement in somebody's transaction.
type exec func(ctx context.Context, statement string, args ...any) error

func pgxExec(tx pgx.Tx) exec {
	return func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}
}

func sqlExec(tx *sql.Tx) exec {
	return func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
}
