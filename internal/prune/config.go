package prune

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says which rows to remove, and the limits of a prune.
type Config struct {
	// Source must lead to the primary server. The role needs SELECT and DELETE on the tables; to
	// create and drop partitions it must own them.
	Source *pgx.ConnConfig
	// Tables are named as in SQL.
	Tables []string
	// Publication is the one that the relay streams. It must publish each row that is inserted into
	// the tables, because a slot also confirms positions after rows that are not published.
	Publication string
	// Slots are the slots that must have confirmed a row before it is removed. At least one.
	Slots []string

	// OlderThan is the minimum age of rows to remove, by the server's clock. Zero: any age.
	OlderThan time.Duration
	// AgeColumn is the column with the age: a timestamp, with or without time zone, or a date.
	// Without time zone it may be in UTC, or in the TimeZone of the database or of the session: the
	// zone that makes the row youngest counts. A row with NULL is never removed. If OlderThan is
	// zero, the column need not exist. Partitions by this column are dropped as a whole, when the
	// latest possible row is old enough.
	AgeColumn string

	// Batch is the approximate number of rows to delete per transaction. Zero means 5,000.
	Batch int
	// Days is the number of days after today to create partitions for, if the table has the
	// function that migrations create for it.
	Days int
	// Wait is the time limit for the slots to confirm a mark, and for another transaction to unlock a table. Zero means a minute.
	Wait time.Duration

	// DryRun reports what would be removed, and removes and creates nothing. It still writes a mark
	// to the WAL.
	DryRun bool
	// Progress is called with the progress on a table, in pages. Optional.
	Progress func(table string, done, total int)

	patience patience // zero: the default
}

// patience is how long statements wait for other transactions. Tests use shorter times.
type patience struct {
	partition time.Duration // for a transaction that has written to a partition
	drop      time.Duration // for the table itself, per attempt to drop partitions of it
	dropPause time.Duration // between these attempts
	row       time.Duration // for rows that another transaction has locked
}

// defaultPatience makes a DROP give up quickly, before deadlock_timeout: while it waits for transactions that use the
// table, every later one waits too.
var defaultPatience = patience{ //nolint:gochecknoglobals // it is not changed
	partition: 3 * time.Second, drop: 300 * time.Millisecond, dropPause: 500 * time.Millisecond, row: time.Second,
}

func (c Config) withDefaults() Config {
	c.Batch = cmp.Or(c.Batch, 5000)
	c.Wait = cmp.Or(c.Wait, time.Minute)
	c.patience = cmp.Or(c.patience, defaultPatience)
	if c.Progress == nil {
		c.Progress = func(string, int, int) {}
	}
	return c
}

// ErrConfig is the error for a configuration that does not fit the database.
var ErrConfig = errors.New("cannot be pruned")

// A NotConfirmedError reports that the slot has not confirmed the rows, so that prune removed no more.
type NotConfirmedError struct {
	Slot   string
	reason string
}

// Error names the slot and the reason.
func (e *NotConfirmedError) Error() string {
	return fmt.Sprintf("slot %q: %s; prune keeps rows that the slot has not confirmed", e.Slot, e.reason)
}

// A Report is the result of Run for each table.
type Report struct {
	DryRun bool    `json:"dry_run"` // nothing was removed: the report has what would be
	Tables []Table `json:"tables"`
}

// A Table is the result for one table.
type Table struct {
	Name      string    `json:"table"`      // with its schema
	Before    time.Time `json:"older_than"` // older rows are removed
	Whole     bool      `json:"whole"`      // rows are removed with their partition, once its last possible row is that old
	Confirmed string    `json:"confirmed"`  // position of the last mark; empty: no mark was needed

	Created []string    `json:"created"` // partitions of the next days
	Dropped []Partition `json:"dropped"`
	Kept    []Partition `json:"kept"` // old enough, but in use

	Deleted int64 `json:"deleted"` // rows
	Busy    int64 `json:"busy"`    // transactions that gave up because another had locked or changed a row

	Warnings []string `json:"warnings,omitempty"`
}

func (t *Table) warn(text string) { t.Warnings = append(t.Warnings, text) }

// A Partition is a partition that is old enough to drop.
type Partition struct {
	Name  string `json:"partition"`
	Bytes int64  `json:"bytes"` // with indexes
	Size  string `json:"-"`     // Bytes, formatted by Postgres
}
