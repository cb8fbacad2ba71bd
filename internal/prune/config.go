package prune

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says what is removed, and how gently.
type Config struct {
	// Source leads to the primary server. The role needs SELECT and DELETE on the tables; to
	// create and drop partitions it must own them.
	Source *pgx.ConnConfig
	// Tables are named as in SQL.
	Tables []string
	// Publication is the one that the relay streams. It must publish each row that is inserted into
	// the tables, because a slot also confirms positions after rows that are not published.
	Publication string
	// Slots must all have confirmed what is removed. At least one.
	Slots []string

	// OlderThan is the age from which rows are removed, by the server's clock. Zero: any.
	OlderThan time.Duration
	// AgeColumn tells the age: a timestamp, with time zone or without, or a date. Without time
	// zone it is read in the TimeZone of the session. A row where it is NULL has no age and stays.
	// With an OlderThan of zero it may be missing. Partitions by this column go only whole, when the
	// last of their rows is old enough.
	AgeColumn string

	// Batch is about how many rows a transaction deletes. Zero means 5,000.
	Batch int
	// Days is how many days after today are to have a partition, where the table has the function
	// that migrations make for it.
	Days int
	// Wait is how long the slots may take to confirm a mark. Zero means a minute.
	Wait time.Duration

	// DryRun looks, and removes and creates nothing. The log gets its mark all the same.
	DryRun bool
	// Progress is told how far the work on a table's rows has come, in pages. Optional.
	Progress func(table string, done, total int)

	patience patience // zero: the default
}

// patience is how long a statement of a prune waits for other transactions. The tests wait less.
type patience struct {
	partition time.Duration // for a transaction that has written to a partition
	drop      time.Duration // for the table itself, per attempt to drop partitions of it
	dropPause time.Duration // between these attempts
	row       time.Duration // for rows that another transaction has locked
}

// defaultPatience has a DROP give up soon, before deadlock_timeout: while it waits for transactions
// that use the table, everyone who comes after it waits, too.
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

// ErrConfig says that the configuration does not fit the database.
var ErrConfig = errors.New("cannot be pruned")

// A NotConfirmedError says that the slot did not confirm what was to be removed, so that nothing
// more was.
type NotConfirmedError struct {
	Slot   string
	reason string
}

// Error says why.
func (e *NotConfirmedError) Error() string {
	return fmt.Sprintf("slot %q: %s; what it has not confirmed stays", e.Slot, e.reason)
}

// A Report is what Run has done to the tables, in their order.
type Report struct {
	DryRun bool    `json:"dry_run"` // nothing was done: this is what would have been
	Tables []Table `json:"tables"`
}

// A Table is what was done to one table.
type Table struct {
	Name      string    `json:"table"`      // with its schema
	Before    time.Time `json:"older_than"` // rows from before then are removed
	Confirmed string    `json:"confirmed"`  // position of the last mark; empty: there was nothing to prove

	Created []string    `json:"created"` // partitions of coming days
	Dropped []Partition `json:"dropped"`
	Kept    []Partition `json:"kept"` // are old enough, and could not be locked in time

	Deleted int64 `json:"deleted"` // rows
	Busy    int64 `json:"busy"`    // transactions given up because somebody else had locked or changed a row

	Warnings []string `json:"warnings,omitempty"`
}

func (t *Table) warn(text string) { t.Warnings = append(t.Warnings, text) }

// A Partition is one that is old enough to go.
type Partition struct {
	Name  string `json:"partition"`
	Bytes int64  `json:"bytes"` // with indexes
	Size  string `json:"-"`     // the same as Postgres prints it
}
