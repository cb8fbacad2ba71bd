package sink

import "context"

// A TransactionalStore is a PositionStore whose broker stores a value and records in one transaction. Its
// NextIdentity also ends the transaction of every Writer with a lower identity: after it has returned, Read returns
// the values of those that were committed, and the others are aborted.
type TransactionalStore interface {
	PositionStore

	// NewTransactionalWriter returns a new Writer of the Sink, for values of the given writer.
	// WriterConfig.Identity is required. Run of the previous Writer must have returned.
	NewTransactionalWriter(writer string, cfg WriterConfig) TransactionalWriter
}

// A TransactionalWriter is a Writer that stores its records in transactions. A consumer that reads only committed
// records sees all records of a transaction or none. In these points it differs from other Writers:
//
//   - Run calls done for a record when its transaction is committed.
//   - If a transaction is aborted, or its outcome is unknown, Run returns an error that wraps ErrAborted. Values read
//     after the next NextIdentity say which records are stored.
//   - If a record is rejected and has no substitute, none of its transaction is stored.
//   - The transactions are stored in order, each as a whole. So a destination that is not available delays the
//     records for all destinations.
type TransactionalWriter interface {
	Writer

	// Commit ends a transaction: it has the records that Send has accepted since the last Commit, and value as the
	// new value of the writer. Run calls committed after it has called done for the records. Commit does not wait
	// for that. The next transaction may collect records meanwhile. The goroutine that calls Send calls Commit.
	//
	// Records that no Commit follows before CloseSend are not delivered.
	Commit(value []byte, committed func())

	// Abort ends the transaction that is open after Run has returned, so that consumers wait neither for the next writer
	// nor for a timeout. It does nothing if there is none, or if a later writer has ended it. It blocks until the broker
	// has responded or ctx ends. Call it at most once. A process that does not call it loses nothing.
	Abort(ctx context.Context) error
}
