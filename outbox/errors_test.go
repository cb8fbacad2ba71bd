package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func many(n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = event(nil)
	}
	return events
}

// An error has a name, the server's error and the way to fix it. A failed call writes nothing, whether it
// has one event, many, or so many that Write uses COPY.
func TestServerErrorsAreExplained(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		for name, test := range map[string]struct {
			ddl, before string
			want        error
			code, says  string
			messages    bool // WriteMessage fails too
		}{
			"no table":       {ddl: `DROP TABLE outbox`, want: outbox.ErrNoTable, code: "42P01", says: "outbox-cdc migrate up"},
			"other schema":   {before: `SET LOCAL search_path = pg_catalog`, want: outbox.ErrNoTable, code: "42P01", says: "search_path"},
			"older table":    {ddl: `ALTER TABLE outbox DROP COLUMN headers`, want: outbox.ErrOldTable, code: "42703", says: "outbox-cdc migrate up"},
			"aborted before": {before: `SELECT 1/0`, want: outbox.ErrAborted, code: "25P02", says: "an earlier statement failed", messages: true},
			"not allowed":    {before: `SET LOCAL ROLE pg_monitor`, code: "42501", says: "permission denied for table outbox"},
			"read only":      {before: `SET TRANSACTION READ ONLY`, code: "25006", says: "read-only"},
		} {
			t.Run(name, func(t *testing.T) {
				db := database(t, srv)
				conn := db.Conn(t)
				if test.ddl != "" {
					db.Exec(t, test.ddl)
				}
				for _, form := range forms(test.messages) {
					for _, n := range []int{1, 2, 1000} {
						err := form.write(t.Context(), writer(t, outbox.Config{}), conn, test.before, many(n)...)
						var pgErr *pgconn.PgError
						if !errors.As(err, &pgErr) || pgErr.Code != test.code || !strings.Contains(err.Error(), test.says) {
							t.Errorf("%s of %d events = %v, want SQLSTATE %s and %q", form.name, n, err, test.code, test.says)
						}
						if test.want != nil && !errors.Is(err, test.want) {
							t.Errorf("%s of %d events = %v, want %v", form.name, n, err, test.want)
						}
					}
				}
				if test.ddl == "" {
					if left := len(rows(t, conn)); left != 0 {
						t.Errorf("%d rows were left", left)
					}
				}
			})
		}
	})
}

// If one of many events has a problem, none is written, and the transaction is still usable.
func TestNothingIsHalfWritten(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	for _, form := range forms(true) {
		for _, n := range []int{2, 1000} {
			events := many(n)
			events[n-1].Payload = []byte(`{"a":`)
			err := form.write(t.Context(), writer(t, outbox.Config{}), conn, "", events...)
			if problem, ok := errors.AsType[*outbox.EventError](err); !ok || problem.Index != n-1 {
				t.Errorf("%s = %v, want the problem of event %d", form.name, err, n-1)
			}
		}
	}
	for _, n := range []int{2, 1000} { // a problem that only the server can find
		events := many(n)
		events[0].ID = uuid.Must(uuid.NewV7())
		events[n-1].ID = events[0].ID
		for _, form := range forms(false) {
			err := form.write(t.Context(), writer(t, outbox.Config{}), conn, "", events...)
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" {
				t.Errorf("%s = %v, want a unique_violation", form.name, err)
			}
		}
	}
	if left := len(rows(t, conn)); left != 0 {
		t.Errorf("%d rows were left", left)
	}
	inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error {
		if err := outbox.Write(ctx, tx, outbox.Event{}); err == nil {
			t.Error("an empty event was written")
		}
		return outbox.Write(ctx, tx, event(nil))
	})
	if n := len(rows(t, conn)); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// INSERT on the table is all that a role needs.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv)
		role := "writer_" + db.Name
		db.Exec(t, `CREATE ROLE `+role+`; GRANT INSERT ON outbox TO `+role)
		defer db.Exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)
		conn := db.Conn(t)
		for _, form := range forms(true) {
			for _, n := range []int{1, 2, 1000} {
				if err := form.write(t.Context(), writer(t, outbox.Config{}), conn, `SET LOCAL ROLE `+role, many(n)...); err != nil {
					t.Errorf("%s of %d events: %v", form.name, n, err)
				}
			}
		}
	})
}
