package replication

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// The known causes of errors, for errors.Is.
var (
	// ErrUnreachable: the server cannot be reached, or the connection was lost. Retry.
	ErrUnreachable = errors.New("source unreachable")
	// ErrAccess: the server rejects the role: password, pg_hba.conf, TLS, privileges, or a missing
	// database.
	ErrAccess = errors.New("source denies access")
	// ErrSlotMissing: the slot does not exist.
	ErrSlotMissing = errors.New("replication slot missing")
	// ErrSlotLost: the slot is invalidated. Postgres has removed WAL that it needs.
	ErrSlotLost = errors.New("replication slot invalidated")

	// ErrWALRemoved: the server lacks WAL that the stream needs. If a new stream of the slot fails in
	// the same way, the slot cannot be used any more.
	ErrWALRemoved = errors.New("WAL of the slot is missing")
	// ErrSlotInUse: another connection streams from the slot.
	ErrSlotInUse = errors.New("replication slot in use")
	// ErrBusy: the server has no free slot, WAL sender, connection, memory or disk space, or did
	// not grant a lock in time. Retry.
	ErrBusy = errors.New("source is busy")
	// ErrPublication: the publication or a table in it is missing, or the publication does not
	// publish inserts.
	ErrPublication = errors.New("publication does not deliver")

	// ErrUnpublished: rows were committed while the publication did not exist, so the slot cannot pass them. It is an
	// ErrPublication.
	ErrUnpublished = fmt.Errorf("%w the next rows", ErrPublication)
	// ErrRow: the server cannot send a row, or the row exceeds [Config.MaxMessageBytes].
	ErrRow = errors.New("row cannot be streamed")
	// ErrServerStopping: the server is shutting down. Retry.
	ErrServerStopping = errors.New("server is shutting down")
	// ErrConfig: a setting of the relay or of the server does not allow streaming.
	ErrConfig = errors.New("source is not configured correctly")
)

// A CredentialsError is a failure to obtain the password for a login. The server has not rejected
// anything: what issues passwords is down, or is not set up.
type CredentialsError struct{ Err error }

// Error returns the text of Err.
func (e *CredentialsError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *CredentialsError) Unwrap() error { return e.Err }

// A RowError is a row that cannot be streamed. It is the last message of a Stream. To skip the
// transaction of the row, advance the slot past CommitLSN: Postgres does not resend a transaction
// whose commit record starts before the confirmed position.
type RowError struct {
	CommitLSN pglogrepl.LSN // of its transaction; 0: a message outside of a transaction
	Err       error         // wraps ErrRow
}

// Error names the transaction and the cause.
func (e *RowError) Error() string {
	if e.CommitLSN == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("transaction %s: %v", e.CommitLSN, e.Err)
}

// Unwrap returns Err.
func (e *RowError) Unwrap() error { return e.Err }

// A phase is the state of the connection when the server reported an error. The same SQLSTATE
// means different things in different phases.
type phase uint8

const (
	connecting phase = 1 << iota // before the first ReadyForQuery
	querying                     // running a statement or replication command
	starting                     // from START_REPLICATION to the first message
	between                      // streaming, between transactions
	inside                       // streaming, inside a transaction

	streaming = between | inside
	always    = connecting | querying | starting | streaming
)

// SQLSTATEs that are used outside of the table too, named as in
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	insufficientPrivilege  = "42501"
	invalidAuthorization   = "28000" // invalid_authorization_specification
	syntaxError            = "42601"
	undefinedObject        = "42704"
	notInPrerequisiteState = "55000"
	undefinedFile          = "58P01"
	internalError          = "XX000"
	readOnly               = "25006" // read_only_sql_transaction
	diskFull               = "53100" // disk_full
)

// A condition is one row of the table of SQLSTATEs.
type condition struct {
	code   string // SQLSTATE, or its first two characters for the whole class
	during phase  // the phases to which the row applies
	is     error  // the error of this package; nil: none
	remedy string // how to fix it, if the server does not say

	fits func(*pgconn.PgError) bool // restricts the row; nil: the code is enough
}

// conditions returns the table that decides what an error of the server means. The first matching
// row applies. An error without a row has no known cause. That includes 55000, which Postgres
// reports for an invalidated slot, a slot of another database and a slot of a standby; only the
// catalog tells these apart.
func conditions() []condition {
	return []condition{
		{"", starting | streaming, ErrWALRemoved, "", isWALRemoved}, // with the code of the call that failed

		{"55006", always, ErrSlotInUse, "", nil},   // object_in_use
		{"55P03", always, ErrBusy, "", nil},        // lock_not_available
		{"57014", always, ErrUnreachable, "", nil}, // query_canceled: of a stream, by pg_cancel_backend
		{"57P04", always, ErrAccess, "", nil},      // database_dropped
		{"08P01", connecting, ErrConfig, "", isStartupRefusal},
		{syntaxError, querying, ErrConfig, remedyPooled, isReplicationCommand},
		{readOnly, always, ErrUnreachable, remedyReadOnly, nil},
		{"25P03", always, ErrUnreachable, remedyTimeout, nil}, // idle_in_transaction_session_timeout
		{"25P04", always, ErrUnreachable, remedyTimeout, nil}, // transaction_timeout
		{"57P05", always, ErrUnreachable, remedyTimeout, nil}, // idle_session_timeout
		{"3D000", always, ErrAccess, remedyDatabase, nil},     // invalid_catalog_name: no such database
		{"28P01", always, ErrAccess, remedyLogin, nil},        // invalid_password
		{insufficientPrivilege, always, nil, remedyFiles, isFileAccess},
		{insufficientPrivilege, always, ErrAccess, remedyPolicies, isRowSecurity},
		{insufficientPrivilege, connecting, ErrAccess, remedyConnect, nil},
		{insufficientPrivilege, querying, ErrAccess, remedySetup, nil},
		{insufficientPrivilege, always, ErrAccess, "", nil},
		{"53300", always, ErrBusy, remedySenders, nil}, // too_many_connections
		{"53400", always, ErrBusy, remedySlots, nil},   // configuration_limit_exceeded
		{"08", always, ErrUnreachable, "", nil},        // connection exception
		{invalidAuthorization, always, ErrAccess, remedyPAM, isPAM},
		{invalidAuthorization, always, ErrAccess, remedyRole, isRole},
		{"28", always, ErrAccess, remedyHBA, nil}, // invalid authorization specification
		{diskFull, always, ErrBusy, remedyDisk, nil},
		{"53", always, ErrBusy, "", nil},        // insufficient resources
		{"57", always, ErrUnreachable, "", nil}, // operator intervention

		// The server rejects a setting, an option or the protocol version.
		{undefinedObject, starting, ErrSlotMissing, "", nil},
		{"0A", connecting | starting, ErrConfig, "", nil},          // feature not supported
		{"22", connecting | starting, ErrConfig, "", nil},          // data exception
		{"42", connecting | starting, ErrConfig, "", nil},          // syntax error or access rule violation
		{internalError, connecting | starting, ErrConfig, "", nil}, // unrecognized pgoutput option

		{undefinedObject, streaming, ErrUnpublished, remedyPublication, nil}, // no publication at this position of the WAL
		{"0A000", streaming, ErrPublication, "", nil},                        // contradictory column lists

		// A row of the transaction that is being sent.
		{internalError, inside, ErrRow, "", isValue}, // the text of a value exceeds 1 GB
		{"54000", inside, ErrRow, "", nil},           // program_limit_exceeded: the text of a row exceeds 1 GB
		{"22021", inside, ErrRow, "", nil},           // character_not_in_repertoire: a value is not valid UTF-8
		{"22P05", inside, ErrRow, "", nil},           // untranslatable_character: a value has no UTF-8 form
	}
}

// isWALRemoved reports whether the server has removed WAL that the slot needs. Messages may be
// translated, so it also compares the names of server functions.
func isWALRemoved(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "has already been removed") ||
		err.Routine == "CheckXLogRemoved" || err.Routine == "WalSndSegmentOpen" && err.Code == undefinedFile
}

// isFileAccess reports whether the server itself has no permission for one of its files.
func isFileAccess(err *pgconn.PgError) bool {
	return strings.HasPrefix(err.Message, "could not ") && strings.Contains(err.Message, `"`)
}

// isPAM reports whether the server has asked PAM, as RDS does for IAM tokens. Messages may be translated, but not the name.
func isPAM(err *pgconn.PgError) bool { return strings.Contains(err.Message, "PAM ") }

// isRole reports whether the role does not exist or may not log in. Messages may be translated.
func isRole(err *pgconn.PgError) bool { return err.Routine == "InitializeSessionUserId" }

// IsReadOnly reports whether the server rejects a statement because it writes: it is a standby, or read-only.
func IsReadOnly(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == readOnly
}

// IsDiskFull reports whether the server has no space left on one of its disks.
func IsDiskFull(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == diskFull
}

// HidesRows reports whether err is Postgres' error in place of hiding rows of a table. [Ordinary] asks for it.
func HidesRows(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && isRowSecurity(pg)
}

// isRowSecurity is HidesRows. Messages may be translated.
func isRowSecurity(err *pgconn.PgError) bool { return err.Routine == "check_enable_rls" }

// changeCallback matches the context of an error while a change is decoded. It may be translated, but not the name of the
// callback.
var changeCallback = regexp.MustCompile(`\bchange\b`)

// isValue reports whether an internal error is about a value of a row, not about the WAL or a file of
// the server.
func isValue(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "invalid memory alloc request size") || changeCallback.MatchString(err.Where)
}

const (
	remedyLogin    = "check the role and the password in source.dsn or in the file of source.dsn_file, or what source.password_command prints, or set it with ALTER ROLE … PASSWORD; or the password has expired: ALTER ROLE … VALID UNTIL 'infinity'; Postgres does not say which, nor whether there is such a role"
	remedyRole     = "create the role, or let it log in: ALTER ROLE … LOGIN"
	remedyPAM      = "on RDS and Aurora this is the IAM token: GRANT rds_iam TO …, allow the identity rds-db:connect for the role, and set source.rds_iam_region (docs/clouds.md#iam-authentication-on-rds-and-aurora)"
	remedyDatabase = "fix the database in source.dsn, or create it"
	remedyHBA      = "pg_hba.conf needs a line for this database, role and address (a line for the database \"replication\" does not apply); then run SELECT pg_reload_conf()"
	remedyConnect  = "the role needs REPLICATION (ALTER ROLE … REPLICATION; on a managed server, check prints the statement) and CONNECT (GRANT CONNECT ON DATABASE … TO …)"
	remedySetup    = "to create a publication, the role must own the tables and have CREATE on the database; to create or drop a slot, it needs the attribute REPLICATION (ALTER ROLE … REPLICATION; on a managed server, check prints the statement)"
	remedySenders  = "find out who is connected in pg_stat_replication and pg_stat_activity; the limits are max_wal_senders, max_connections and the role's CONNECTION LIMIT"
	remedyDisk     = "free space on the server's disk"
	remedySlots    = "drop an unused slot (see pg_replication_slots), or raise max_replication_slots and restart the server"

	remedyFiles = "the server has no permission for one of its own files: check the owner and mode of the file, and whether its file system is read-only"

	remedyPolicies = "the role would not see every row: ALTER ROLE … BYPASSRLS, which needs a superuser; for the table's owner, ALTER TABLE … NO FORCE ROW LEVEL SECURITY is enough"
	remedyReadOnly = "the server is a standby, or its provider has made it read-only, for example because its disk is full"
	remedyTimeout  = "each session turns this timeout off when it starts; if it ends sessions before that, raise it for the role, the database or the server"

	remedyPublication = "the publication did not exist when these rows were committed, and creating it now does not bring them back"
)

// conditionOf returns the row of the table for an error in a phase, or the zero value if there is none.
func conditionOf(err *pgconn.PgError, at phase) condition {
	for _, c := range conditions() {
		if c.during&at != 0 && strings.HasPrefix(err.Code, c.code) && (c.fits == nil || c.fits(err)) {
			return c
		}
	}
	return condition{}
}

// Classified reports whether the error of a statement has a known cause, so that [QueryError] wraps one of
// the errors of this package.
func Classified(err *pgconn.PgError) bool { return conditionOf(err, querying).is != nil }

// serverError wraps an error of the server. doing says what the relay was doing. While streaming,
// the server's context (slot, callback and LSN, never values) is added.
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

// QueryError wraps the error of a statement with doing, the purpose of the statement, and with the
// error of this package that is its cause. It returns nil if err is nil.
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

// wrap wraps an error of pgconn or of the network with its cause. If ctx has ended, the cause is
// that of ctx, with ErrUnreachable if it is a deadline.
func wrap(ctx context.Context, doing string, err error, at phase) error {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, doing, cause)
	case cause != nil:
		return fmt.Errorf("%s: %w", doing, cause)
	}
	return wrapCause(doing, err, at)
}

// wrapCause wraps an error of pgconn or of the network, which must not be nil, with its cause.
func wrapCause(doing string, err error, at phase) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverError(doing, pg, at)
	}
	if credentials, ok := errors.AsType[*CredentialsError](err); ok {
		return fmt.Errorf("%s: no password: %w", doing, credentials)
	}
	if errors.Is(err, ErrConfig) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if at != connecting || isNetwork(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, doing, err)
	}
	return fmt.Errorf("%w: %s: %w%s", ErrAccess, doing, err, certificateRemedy(err)) // TLS, authentication
}

// isNetwork reports whether the network failed, not TLS or authentication.
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
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
