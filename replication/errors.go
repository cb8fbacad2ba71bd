package replication

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// What went wrong, for errors.Is.
var (
	// ErrUnreachable: no connection, or the connection was lost. It heals by itself.
	ErrUnreachable = errors.New("source unreachable")
	// ErrAccess: the server refuses us: credentials, pg_hba.conf, TLS, privileges, an absent
	// database.
	ErrAccess = errors.New("source refuses access")
	// ErrSlotMissing: there is no such slot.
	ErrSlotMissing = errors.New("replication slot missing")
	// ErrSlotLost: the slot is there, and WAL that it needs is gone.
	ErrSlotLost = errors.New("replication slot lost")

	// ErrWALRemoved: the server misses WAL that the stream needs. Unless another stream of the slot can be
	// read, the slot is lost.
	ErrWALRemoved = errors.New("WAL of the slot is missing")
	// ErrSlotInUse: another connection streams from the slot.
	ErrSlotInUse = errors.New("replication slot in use")
	// ErrBusy: the server has no free slot, walsender, connection, memory or disk space, or
	// a lock was not granted in time.
	ErrBusy = errors.New("source is busy")
	// ErrPublication: the publication or its table is missing or does not deliver inserts.
	ErrPublication = errors.New("publication does not deliver")
	// ErrRow: a row that this server cannot send or that is larger than we take.
	ErrRow = errors.New("row cannot be streamed")
	// ErrServerStopping: the server shuts down.
	ErrServerStopping = errors.New("server is stopping")
	// ErrConfig: a setting of ours or of the server's rules streaming out.
	ErrConfig = errors.New("source is configured wrongly")
)

// A RowError is a row that cannot be streamed. It is the last message of a Stream. What a slot
// has confirmed up to behind the beginning of a commit record is not sent again.
type RowError struct {
	CommitLSN pglogrepl.LSN // of its transaction; 0: it is a message outside of one
	Err       error         // wraps ErrRow
}

// Error names the transaction.
func (e *RowError) Error() string {
	if e.CommitLSN == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("transaction %s: %v", e.CommitLSN, e.Err)
}

// Unwrap returns what is wrong with the row.
func (e *RowError) Unwrap() error { return e.Err }

// A phase is what was going on when the server reported an error: a code means different
// things in different phases.
type phase uint8

const (
	connecting phase = 1 << iota // up to the first ReadyForQuery
	querying                     // a statement or replication command
	starting                     // START_REPLICATION up to the first message
	between                      // streaming, while no transaction is being sent
	inside                       // streaming, inside a transaction

	streaming = between | inside
	always    = connecting | querying | starting | streaming
)

// SQLSTATEs, named as in https://www.postgresql.org/docs/current/errcodes-appendix.html, that
// are looked at outside the table too.
const (
	insufficientPrivilege  = "42501"
	syntaxError            = "42601"
	undefinedObject        = "42704"
	notInPrerequisiteState = "55000"
	undefinedFile          = "58P01"
	internalError          = "XX000"
)

// A condition is one row of the table of SQLSTATEs.
type condition struct {
	code   string // or the class that its first two characters name
	during phase  // in which phases the row holds
	is     error  // nil: nothing that is known
	remedy string // what to do, where the server does not say it

	fits func(*pgconn.PgError) bool // narrows the row down; nil: the code is enough
}

// conditions is the only place that decides what an error means that the server reports. The
// first row that fits counts. A code that is not in it has no identity: 55000 above all, which
// a slot that is invalidated, of another database or a standby's shares, and only the
// catalog tells them apart.
func conditions() []condition {
	return []condition{
		{"", starting | streaming, ErrWALRemoved, "", isWALRemoved}, // the code is that of what failed first

		{"55006", always, ErrSlotInUse, "", nil},       // object_in_use
		{"55P03", always, ErrBusy, "", nil},            // lock_not_available
		{"57014", always, ErrUnreachable, "", nil},     // query_canceled: of a stream, by pg_cancel_backend
		{"57P04", always, ErrAccess, "", nil},          // database_dropped
		{"25006", always, ErrUnreachable, "", nil},     // read_only_sql_transaction: a standby was reached, not the primary
		{"3D000", always, ErrAccess, "", nil},          // invalid_catalog_name: no such database
		{"28P01", always, ErrAccess, remedyLogin, nil}, // invalid_password
		{insufficientPrivilege, always, nil, remedyFiles, isFileAccess},
		{insufficientPrivilege, connecting, ErrAccess, remedyConnect, nil},
		{insufficientPrivilege, querying, ErrAccess, remedySetup, nil},
		{insufficientPrivilege, always, ErrAccess, "", nil},
		{"53300", always, ErrBusy, remedySenders, nil}, // too_many_connections
		{"53400", always, ErrBusy, remedySlots, nil},   // configuration_limit_exceeded
		{"08", always, ErrUnreachable, "", nil},        // connection exception
		{"28", always, ErrAccess, remedyHBA, nil},      // invalid authorization specification
		{"53", always, ErrBusy, "", nil},               // insufficient resources
		{"57", always, ErrUnreachable, "", nil},        // operator intervention

		// What we ask for: a setting, an option, a version of the protocol.
		{undefinedObject, starting, ErrSlotMissing, "", nil},
		{"0A", connecting | starting, ErrConfig, "", nil},          // feature not supported
		{"22", connecting | starting, ErrConfig, "", nil},          // data exception
		{"42", connecting | starting, ErrConfig, "", nil},          // syntax error or access rule violation
		{internalError, connecting | starting, ErrConfig, "", nil}, // unrecognized pgoutput option

		{undefinedObject, streaming, ErrPublication, remedyPublication, nil}, // the publication, at this position of the log
		{"0A000", streaming, ErrPublication, "", nil},                        // column lists that contradict each other

		// A row, of the transaction that is being sent.
		{internalError, inside, ErrRow, "", isValue}, // a value that exceeds 1 GB when printed
		{"54000", inside, ErrRow, "", nil},           // program_limit_exceeded: the same of a row
		{"22021", inside, ErrRow, "", nil},           // character_not_in_repertoire: a value that is no text in UTF8
		{"22P05", inside, ErrRow, "", nil},           // untranslatable_character: the same
	}
}

// isWALRemoved reports whether the server has removed WAL that the slot needs. Its text may be
// translated, the names of its functions are not.
func isWALRemoved(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "has already been removed") ||
		err.Routine == "CheckXLogRemoved" || err.Routine == "WalSndSegmentOpen" && err.Code == undefinedFile
}

// isFileAccess reports whether it is the server that lacks a right, to a file of its own.
func isFileAccess(err *pgconn.PgError) bool {
	return strings.HasPrefix(err.Message, "could not ") && strings.Contains(err.Message, `"`)
}

// isValue reports whether an internal error is about a value of a row, rather than about the WAL or
// a file that the server reads.
func isValue(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "invalid memory alloc request size") || strings.Contains(err.Where, "in the change callback")
}

const (
	remedyLogin   = "is the password of source.dsn the role's? ALTER ROLE … PASSWORD sets it"
	remedyHBA     = "the role needs LOGIN, and pg_hba.conf a line for this database, role and address, to be followed by SELECT pg_reload_conf(); a line for the database \"replication\" does not count here"
	remedyConnect = "the role needs REPLICATION (ALTER ROLE … REPLICATION) and CONNECT (GRANT CONNECT ON DATABASE … TO …)"
	remedySetup   = "to create a publication takes the tables' owner with CREATE on the database, to create or drop a slot the attribute REPLICATION (ALTER ROLE … REPLICATION)"
	remedySenders = "see pg_stat_replication and pg_stat_activity for who is connected; max_wal_senders and max_connections are the limits, the role's CONNECTION LIMIT is another"
	remedySlots   = "drop a slot that nobody needs (pg_replication_slots has them), or raise max_replication_slots and restart the server"

	remedyFiles = "this is about a file of the server's own: look at its owner and mode, and whether its file system is read-only"

	remedyPublication = "there was no publication when this was committed, and creating it again does not help: send the rows otherwise, and begin anew with: outbox-cdc setup --drop, and outbox-cdc setup"
)

// conditionOf returns what an error means in a phase; its zero value: nothing that is known.
func conditionOf(err *pgconn.PgError, at phase) condition {
	for _, c := range conditions() {
		if c.during&at != 0 && strings.HasPrefix(err.Code, c.code) && (c.fits == nil || c.fits(err)) {
			return c
		}
	}
	return condition{}
}

// Classified reports whether an error that a statement ends with has an identity.
func Classified(err *pgconn.PgError) bool { return conditionOf(err, querying).is != nil }

// serverError wraps what the server reported. context is where it happened, as far as the
// server says: slot, callback and LSN; no values.
func serverError(doing string, err *pgconn.PgError, at phase) error {
	if at&streaming != 0 && err.Where != "" {
		doing += " (" + strings.ReplaceAll(err.Where, "\n", "; ") + ")"
	}
	c, remedy := conditionOf(err, at), ""
	if c.remedy != "" {
		remedy = "; " + c.remedy
	}
	if c.is == nil {
		return fmt.Errorf("%s: %w%s", doing, err, remedy)
	}
	return fmt.Errorf("%w: %s: %w%s", c.is, doing, err, remedy)
}

// QueryError gives the error of a statement, which doing says the purpose of, its identity.
func QueryError(ctx context.Context, doing string, err error) error {
	return wrap(ctx, doing, err, querying)
}

// pgError decodes an ErrorResponse.
func pgError(doing string, body []byte, at phase) error {
	var response pgproto3.ErrorResponse
	if err := response.Decode(body); err != nil {
		return fmt.Errorf("%s: read an ErrorResponse: %w", doing, err)
	}
	return serverError(doing, pgconn.ErrorResponseToPgError(&response), at)
}

// wrap gives an error of pgconn or of the network its identity. One that comes from the
// end of ctx is the cause of ctx, and is ErrUnreachable if that is a deadline.
func wrap(ctx context.Context, doing string, err error, at phase) error {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, doing, cause)
	case cause != nil:
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverError(doing, pg, at)
	}
	if at != connecting || isNetwork(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, doing, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrAccess, doing, err) // TLS, authentication
}

// isNetwork reports whether a connection failed below TLS and authentication.
func isNetwork(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") {
		return false // an alert of crypto/tls
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
