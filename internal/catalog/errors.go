package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// SQLSTATEs, named as in https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	insufficientPrivilege  = "42501"
	invalidParameterValue  = "22023"
	featureNotSupported    = "0A000"
	undefinedObject        = "42704"
	undefinedColumn        = "42703"
	notInPrerequisiteState = "55000"
	lockNotAvailable       = "55P03"
)

// ErrNoTable says that a table of the configuration does not exist. It is a [replication.ErrPublication].
var ErrNoTable = fmt.Errorf("%w", replication.ErrPublication)

// A WALLevelError says that wal_level does not allow logical decoding. It is a [replication.ErrConfig].
type WALLevelError struct {
	Level string // the value of wal_level
}

// Error says how to change it.
func (e *WALLevelError) Error() string {
	return fmt.Sprintf("%v: wal_level is %s; ALTER SYSTEM SET wal_level = logical, and restart the server; on a managed server, see docs/clouds.md", replication.ErrConfig, e.Level)
}

// Unwrap returns ErrConfig.
func (e *WALLevelError) Unwrap() error { return replication.ErrConfig }

// sqlState returns the SQLSTATE of an error of the server, otherwise "".
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// Diagnose adds the cause to err, the error with which a stream of cfg did not start, if the SQLSTATE
// alone is ambiguous. Postgres reports 55000 for an invalidated slot, a slot of another database and a
// slot of a standby.
func Diagnose(ctx context.Context, cfg replication.Config, err error) error {
	if code := sqlState(err); code != notInPrerequisiteState && code != undefinedObject {
		return err
	}
	state, inspectErr := Inspect(ctx, cfg.Conn, cfg.Publication, cfg.Slot, nil)
	if inspectErr != nil {
		return fmt.Errorf("%w; the cause could not be read from the catalog: %w", err, inspectErr)
	}
	state.Messages = len(cfg.Messages) > 0
	if reason := state.Verify(); reason != nil {
		return fmt.Errorf("%w (%w)", reason, err)
	}
	return err
}
