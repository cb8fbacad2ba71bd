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
	// ErrSlotLost: the slot is invalidated; the changes it stood for are gone.
	ErrSlotLost = errors.New("replication slot lost")
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

// A phase is what was going on when the server reported an error: a code means different
// things in different phases.
type phase int

const (
	connecting phase = iota // up to the first ReadyForQuery
	querying                // a statement or replication command
	starting                // START_REPLICATION up to the first message
	streaming
)

// SQLSTATEs, named as in https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	featureNotSupported        = "0A000"
	notInRepertoire            = "22021"
	untranslatableCharacter    = "22P05"
	invalidCatalogName         = "3D000"
	insufficientPrivilege      = "42501"
	invalidName                = "42602"
	undefinedObject            = "42704"
	duplicateObject            = "42710"
	configurationLimitExceeded = "53400"
	programLimitExceeded       = "54000"
	notInPrerequisiteState     = "55000"
	objectInUse                = "55006"
	lockNotAvailable           = "55P03"
	queryCanceled              = "57014"
	readOnlyTransaction        = "25006"
	cannotConnectNow           = "57P03"
	databaseDropped            = "57P04"
	internalError              = "XX000"
)

// identityOf returns the sentinel that a code stands for in a phase; nil: none.
func identityOf(code string, at phase) error {
	switch code {
	case objectInUse:
		return ErrSlotInUse
	case lockNotAvailable:
		return ErrBusy
	case insufficientPrivilege, invalidCatalogName, databaseDropped:
		return ErrAccess
	case queryCanceled: // of a stream, by pg_cancel_backend
		return ErrUnreachable
	case readOnlyTransaction: // a standby was reached, not the primary
		return ErrUnreachable
	}
	switch code[:min(2, len(code))] {
	case "08", "57": // connection exception, operator intervention
		return ErrUnreachable
	case "28": // invalid authorization
		return ErrAccess
	case "53": // insufficient resources
		return ErrBusy
	}
	switch at {
	case starting:
		if code == undefinedObject {
			return ErrSlotMissing
		}
		return refusal(code)
	case streaming:
		return streamIdentity(code)
	case connecting:
		return refusal(code)
	case querying:
	}
	return nil
}

// refusal is for codes of what we ask for: a setting, an option, a protocol version. Code
// 55000 has no identity: a slot that is invalidated, of another database or a standby's
// all have it, and only the catalog tells them apart.
func refusal(code string) error {
	switch code[:min(2, len(code))] {
	case "0A", "22", "42":
		return ErrConfig
	}
	if code == internalError { // unrecognized pgoutput option
		return ErrConfig
	}
	return nil
}

func streamIdentity(code string) error {
	switch code {
	case undefinedObject: // the publication, at this position of the log
		return ErrPublication
	case featureNotSupported: // column lists that contradict each other
		return ErrPublication
	case internalError, programLimitExceeded: // a value that exceeds 1 GB when printed
		return ErrRow
	case notInRepertoire, untranslatableCharacter: // a value that is no text in UTF8
		return ErrRow
	}
	return nil
}

// serverError wraps what the server reported. context is where it happened, as far as the
// server says: slot, callback and LSN; no values.
func serverError(doing string, err *pgconn.PgError, at phase) error {
	if at == streaming && err.Where != "" {
		doing += " (" + strings.ReplaceAll(err.Where, "\n", "; ") + ")"
	}
	if id := identityOf(err.Code, at); id != nil {
		return fmt.Errorf("%w: %s: %w", id, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
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

// sqlState returns the code of an error the server has reported, else "".
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
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
