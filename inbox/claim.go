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

// Claim records in tx that consumer processes the event. It reports whether this is the first time.
// If fresh is false, the event has been processed before: skip its effects.
//
// The claim is a row of processed_events. It is committed or rolled back with the effects in the same
// transaction. If two transactions claim the same event, the second one waits in Claim until the
// first one ends. Then fresh is false for the second one if the first one committed, and true if it
// rolled back. At isolation level REPEATABLE READ or SERIALIZABLE the second one gets a serialization
// failure (40001) instead, and you retry it as usual. Transactions that claim several events must do
// so in the same order, or Postgres may end one of them as a deadlock.
//
// Claims of different consumers are independent. After an error tx is aborted, unless the error is
// about the arguments. See [ErrNoTable], [ErrOldTable] and [ErrAborted].
func Claim(ctx context.Context, tx pgx.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	return Store{}.Claim(ctx, tx, consumer, eventID)
}

// ClaimSQL is [Claim] for database/sql. It works with any Postgres driver, and so with sqlx, GORM,
// ent and bun.
func ClaimSQL(ctx context.Context, tx *sql.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	return Store{}.ClaimSQL(ctx, tx, consumer, eventID)
}

// A Store is a pair of inbox tables. Its methods inspect and change them; a [Processor] does not need
// one. The zero value uses the tables that the search_path finds.
type Store struct {
	// Schema is the schema of the tables, as in the catalog. Empty means the search_path.
	Schema string
}

// Claim is the function [Claim] for the tables of s.
func (s Store) Claim(ctx context.Context, tx pgx.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
	if err := checkClaim(consumer, eventID); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, s.claim(), consumer, eventID.String())
	if err != nil {
		return false, explain("claim", err)
	}
	return tag.RowsAffected() == 1, nil
}

// ClaimSQL is the function [ClaimSQL] for the tables of s.
func (s Store) ClaimSQL(ctx context.Context, tx *sql.Tx, consumer string, eventID uuid.UUID) (fresh bool, err error) {
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

// claim returns the claiming statement. It declares the types of its parameters, so it works with any
// driver, and in the modes of pgx that prepare no statements.
func (s Store) claim() string {
	return `INSERT INTO ` + s.table(claimsTable) +
		` (consumer, event_id) VALUES ($1::text, $2::text::uuid) ON CONFLICT DO NOTHING`
}

const (
	claimsTable = "processed_events"
	eventsTable = "inbox_events"
)

// table returns the quoted name of a table.
func (s Store) table(name string) string {
	if s.Schema == "" {
		return name
	}
	return pgx.Identifier{s.Schema, name}.Sanitize()
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
		return fmt.Errorf("inbox: the consumer's name %q is not valid text", consumer)
	}
	return nil
}
