package outbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// defaultWriter serves the package-level Write.
//
//nolint:gochecknoglobals // never changes after initialization
var defaultWriter = newWriter(Table{}.withDefaults())

// Write inserts events in tx, into the table outbox of tx's search_path. They are published if and
// only if tx commits.
//
// It is one round trip however many events there are (on a connection's first use of the statement
// pgx prepares it, in one more), and the events keep their order. All events are checked before
// anything is sent: the first problem is returned as an [*EventError], with nothing written and
// tx still usable. After any other error tx is aborted, as after every failed statement.
//
// Write does not retain the events or the bytes in them. Without events it does nothing.
func Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Write(ctx, tx, events...)
}

// A Writer writes to a table of your own making. It is immutable, so one Writer serves any number
// of goroutines.
type Writer struct {
	table     Table
	one, many string // SQL, the same text every time: pgx caches prepared statements by it
}

// NewWriter returns a Writer for t. It does not look at the database.
func NewWriter(t Table) (*Writer, error) {
	t = t.withDefaults()
	if err := t.validate(); err != nil {
		return nil, err
	}
	return newWriter(t), nil
}

// newWriter returns a Writer for t, which is valid and complete.
func newWriter(t Table) *Writer {
	one, many := t.statements()
	return &Writer{table: t, one: one, many: many}
}

// Write does what the function of that name does, with w's table.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	for i := range events {
		if problem := events[i].check(&w.table); problem != nil {
			problem.Index = i
			return problem
		}
	}
	var err error
	switch len(events) {
	case 0:
		return nil
	case 1:
		err = w.writeOne(ctx, tx, &events[0])
	default:
		err = w.writeMany(ctx, tx, events)
	}
	if err != nil {
		return fmt.Errorf("outbox: write %d events: %w", len(events), err)
	}
	return nil
}

func (w *Writer) writeOne(ctx context.Context, tx pgx.Tx, e *Event) error {
	id, err := e.identity()
	if err != nil {
		return err
	}
	headers, err := e.headers()
	if err != nil {
		return err
	}
	args := [...]any{id, e.AggregateType, e.AggregateID, e.Type, nil, headers}
	switch {
	case e.Payload == nil:
	case w.table.PayloadType == Bytea:
		args[4] = e.Payload
	default:
		args[4] = string(e.Payload)
	}
	_, err = tx.Exec(ctx, w.one, args[:w.params()]...)
	return err
}

func (w *Writer) writeMany(ctx context.Context, tx pgx.Tx, events []Event) error {
	n := len(events)
	ids, types := make([]pgtype.UUID, n), make([]string, n)
	aggregateTypes, aggregateIDs := make([]string, n), make([]string, n)
	texts, binaries, headers := make([]*string, n), make([][]byte, n), make([]*string, n)
	for i := range events {
		e := &events[i]
		var err error
		if ids[i], err = e.identity(); err != nil {
			return err
		}
		if headers[i], err = e.headers(); err != nil {
			return err
		}
		aggregateTypes[i], aggregateIDs[i], types[i] = e.AggregateType, e.AggregateID, e.Type
		if binaries[i] = e.Payload; e.Payload != nil && w.table.PayloadType != Bytea {
			text := string(e.Payload)
			texts[i] = &text
		}
	}
	args := [...]any{ids, aggregateTypes, aggregateIDs, types, texts, headers}
	if w.table.PayloadType == Bytea {
		args[4] = binaries
	}
	_, err := tx.Exec(ctx, w.many, args[:w.params()]...)
	return err
}

// params returns how many parameters the statements have.
func (w *Writer) params() int {
	if w.table.Columns.Headers == NoColumn {
		return 5
	}
	return 6
}

// identity returns e.ID, or a new one.
func (e *Event) identity() (pgtype.UUID, error) {
	id := e.ID
	if id == uuid.Nil {
		var err error
		if id, err = uuid.NewV7(); err != nil {
			return pgtype.UUID{}, fmt.Errorf("make an id: %w", err)
		}
	}
	return pgtype.UUID{Bytes: id, Valid: true}, nil
}

// headers returns e.Headers as a JSON object, or nil for NULL.
func (e *Event) headers() (*string, error) {
	if len(e.Headers) == 0 {
		return nil, nil //nolint:nilnil // NULL is a value of the column
	}
	object, err := json.Marshal(e.Headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	text := string(object)
	return &text, nil
}
