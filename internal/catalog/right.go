package catalog

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A RightError names a right that the role lacks, which Postgres itself would report late or not at all. It is a
// [replication.ErrAccess].
type RightError struct {
	What string // what the role lacks, and how to grant it
}

// Error contains What.
func (e *RightError) Error() string { return fmt.Sprintf("%v: %s", replication.ErrAccess, e.What) }

// Unwrap returns [replication.ErrAccess].
func (e *RightError) Unwrap() error { return replication.ErrAccess }
