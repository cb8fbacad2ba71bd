package pump

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// A DeliveryError is an outbox row that cannot be delivered.
type DeliveryError struct {
	CommitLSN pglogrepl.LSN // of its transaction
	Row       int           // index of the row in the transaction
	Copied    bool          // it was read from its table, not from the WAL: no position of the slot is behind it alone
	ID        string        // of the event, if Err does not contain it
	Err       error         // an *encode.RowError, *encode.ColumnError, *sink.RecordError or the error of the writer
}

// Error names the transaction, the row and the reason.
func (e *DeliveryError) Error() string {
	id := ""
	if e.ID != "" {
		id = ", id " + e.ID
	}
	if e.Copied {
		return fmt.Sprintf("row %d of the rows read from the table%s: %v", e.Row, id, e.Err)
	}
	return fmt.Sprintf("transaction %s, row %d%s: %v", e.CommitLSN, e.Row, id, e.Err)
}

// Unwrap returns the reason.
func (e *DeliveryError) Unwrap() error { return e.Err }

// A RelationError is a table whose rows cannot become records as they are from a transaction on.
type RelationError struct {
	CommitLSN pglogrepl.LSN // of the transaction
	Err       error         // an *encode.ColumnError, or an error of the catalog
}

// Error returns the reason.
func (e *RelationError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RelationError) Unwrap() error { return e.Err }

// A ChangeError says that an outbox row was changed by something other than an INSERT.
type ChangeError struct {
	Kind      string // UPDATE, DELETE, TRUNCATE
	Table     string
	CommitLSN pglogrepl.LSN
}

// Error names the change, its table and its transaction.
func (e *ChangeError) Error() string {
	return fmt.Sprintf("transaction %s: %s of %s is published, but only INSERTs are events", e.CommitLSN, e.Kind, e.Table)
}

// A SendError is an error of Send: ctx has ended, or the writer is about to end. In the second case, the
// error of its Run says more.
type SendError struct{ error }

func (e *SendError) Unwrap() error { return e.error }
