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
	undefinedObject        = "42704"
	notInPrerequisiteState = "55000"
	lockNotAvailable       = "55P03"
)

// sqlState returns the code of an error the server has reported, else "".
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// Diagnose completes the error with which a stream of cfg did not start, where the catalog says
// more about it: of a slot that is missing, or by a code that slots which are invalidated, of
// another database or a standby's share.
func Diagnose(ctx context.Context, cfg replication.Config, err error) error {
	if code := sqlState(err); code != notInPrerequisiteState && code != undefinedObject {
		return err
	}
	state, inspectErr := Inspect(ctx, cfg.Conn, cfg.Publication, cfg.Slot)
	if inspectErr != nil {
		return fmt.Errorf("%w; its cause is not known: %w", err, inspectErr)
	}
	state.Messages = len(cfg.Messages) > 0
	if reason := state.Verify(); reason != nil {
		return fmt.Errorf("%w (%w)", reason, err)
	}
	return err
}
