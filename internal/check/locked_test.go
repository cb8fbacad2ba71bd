package check

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// A transaction that locks the table fails a condition, which names the transaction and says what to do. A relay starts nevertheless.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "check waits for the lock")
	r, srv, _ := beside(t)
	conn, err := pgx.Connect(t.Context(), r.db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `SET application_name = locker; BEGIN; LOCK TABLE outbox`); err != nil {
		t.Fatal(err)
	}
	condition := "catalog" // from 16 on, Postgres locks a table to list its columns
	if srv.Install().Major < 16 {
		condition = "table outbox"
		if err := start(t, r.config(t).Relay, false); err != nil {
			t.Errorf("a relay does not start: exit code %d, %v", fault.ExitCode(err), err)
		}
	}
	unmet := r.unmet(t)
	if c := unmet[condition]; !strings.Contains(c.Found, `application "locker"`) || !strings.Contains(c.Fix, "wait for the end of the transactions") {
		t.Errorf("%+v", unmet)
	}
}
