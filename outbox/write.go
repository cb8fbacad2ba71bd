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

// Write inserts events into the table outbox, in tx. They are published if and only if tx commits.
//
// Write finds the table with the search_path of tx. For another table create a [Writer].
//
// A call is one statement and one round trip, however many events there are, and keeps their order.
// From 500 events on it uses COPY, which is faster then and takes two round trips. When a connection
// uses the statement for the first time, pgx prepares it in one more round trip.
//
// Write checks all events before it sends anything. It returns the first problem as an [*EventError]:
// nothing is written, and tx is still usable. After any other error tx is aborted, so roll it back. See
// [ErrNoTable], [ErrOldTable] and [ErrAborted].
//
// The role needs INSERT on the table. COPY does not work with row-level security: if the role has
// policies, write fewer than 500 events at a time.
//
// Write does not keep the events or their bytes. Without events it does nothing.
func Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Write(ctx, tx, events...)
}

// WriteSQL is [Write] for database/sql. It works with any Postgres driver, and so with sqlx, GORM, ent
// and bun. A call is one statement, however many events there are. Its parameters are text and bytes.
func WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.WriteSQL(ctx, tx, events...)
}

// A Writer writes events with a Config of its own. Several goroutines may use it at the same time.
type Writer struct {
	cfg       Config
	columns   []column
	one, many string // statements, whose text never changes: pgx caches prepared statements by text
}

// NewWriter returns a Writer for cfg. It does not connect to the database.
func NewWriter(cfg Config) (*Writer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newWriter(cfg), nil
}

// newWriter returns a Writer for a valid cfg with all defaults set.
func newWriter(cfg Config) *Writer {
	w := &Writer{cfg: cfg, columns: cfg.columns()}
	w.one, w.many = cfg.statements(w.columns)
	return w
}

// Write is the function [Write] with the Config of w.
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

// WriteSQL is the function [WriteSQL] with the Config of w.
func (w *Writer) WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	rows, err := w.rows(ctx, w.cfg.PayloadType, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	return explain(len(rows), w.insert(ctx, sqlExec(tx), rows))
}

// rows checks events and returns their rows. payloadType is the type of the payload column.
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

// insert writes rows with one statement.
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

// copyFrom is the number of events from which COPY is faster, although it takes one more round trip.
const copyFrom = 500

// copy writes rows with COPY.
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

// An exec runs a statement in a transaction.
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
