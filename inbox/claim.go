package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Claim notes in tx that consumer processes the event, and reports whether it is the first to do so.
// If fresh is false the event has been processed before: leave its effects out.
//
// The claim is a row of processed_events, so it commits with the effects that are in the same
// transaction, and is gone with them. Of two transactions that claim the same event at the same
// time the second waits in Claim until the first has ended: if that has committed, fresh is false
// for the second, if it has rolled back, true. In a transaction of the level REPEATABLE READ or
// SERIALIZABLE the second gets a serialization failure (40001) instead, and is to be repeated as
// always. Two transactions that claim several events should do so in the same order, or one of them
// is ended as a deadlock.
//
// Consumers with different names do not see each other's claims. An error has aborted tx, unless it is
// about the arguments; see [ErrNoTable], [ErrOldTable] and [ErrAborted].
func Claim(ctx context.Context, tx pgx.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	return Schema("").Claim(ctx, tx, consumer, eventID)
}

// ClaimSQL is [Claim] for database/sql, with any driver for Postgres, and so for what is built on
// it: sqlx, GORM, ent, bun.
func ClaimSQL(ctx context.Context, tx *sql.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	return Schema("").ClaimSQL(ctx, tx, consumer, eventID)
}

// A Schema is the name of the schema with the inbox's tables, as it stands in the catalog. The empty
// one means the search_path, which is what the package-level functions use.
type Schema string

// Claim does what the function of that name does, in this schema.
func (s Schema) Claim(ctx context.Context, tx pgx.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	if err := checkClaim(consumer, eventID); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, s.claim(), consumer, eventID.String())
	if err != nil {
		return false, explain("claim", err)
	}
	return tag.RowsAffected() == 1, nil
}

// ClaimSQL does what the function of that name does, in this schema.
func (s Schema) ClaimSQL(ctx context.Context, tx *sql.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	if err := checkClaim(consumer, eventID); err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, s.claim(), consumer, eventID.String())
	if err != nil {
		return false, explain("claim", err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, explain("claim", err)
	}
	return rows == 1, nil
}

// claim returns the statement, which says the types of its parameters: so it works with any driver,
// and in pgx's modes without a prepared statement behind a pooler.
func (s Schema) claim() string {
	return `INSERT INTO ` + s.table(claimsTable) +
		` (consumer, event_id) VALUES ($1::text, $2::text::uuid) ON CONFLICT DO NOTHING`
}

const (
	claimsTable = "processed_events"
	eventsTable = "inbox_events"
)

// table returns the name of one of the tables in SQL.
func (s Schema) table(name string) string {
	if s == "" {
		return name
	}
	return pgx.Identifier{string(s), name}.Sanitize()
}

func checkClaim(consumer string, eventID uuid.UUID) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	if eventID == uuid.Nil {
		return errors.New("inbox: the event's id is the nil UUID")
	}
	return nil
}

func checkConsumer(consumer string) error {
	switch {
	case consumer == "":
		return errors.New("inbox: the consumer's name is empty")
	case !utf8.ValidString(consumer) || strings.IndexByte(consumer, 0) >= 0:
		return fmt.Errorf("inbox: the consumer's name %q is not text", consumer)
	}
	return nil
}
