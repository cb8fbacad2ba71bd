package check

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// For a publication that leaves out rows, check has the instruction of run to its end, not only the statement.
func TestOneInstruction(t *testing.T) {
	t.Parallel()
	srv, fake := pgtest.StartOther(t, pgserver.Config{Settings: limited()}), kafkatest.Fake(t)
	for name, tc := range map[string]struct{ change, title string }{
		"no INSERT":     {`ALTER PUBLICATION pub SET (publish = 'delete')`, "publish"},
		"another table": {`CREATE TABLE other (id int); ALTER PUBLICATION pub SET TABLE other`, "table outbox"},
		"table dropped": {`DROP TABLE outbox`, "table outbox"},
		"no table":      {`ALTER PUBLICATION pub DROP TABLE outbox`, "table outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := whole(t, srv, fake.Cluster)
			r.run(t, strings.Split(tc.change, "; ")...)
			cfg := r.config(t)
			state, err := catalog.Inspect(t.Context(), cfg.Relay.Source.Conn, "pub", r.db.Name, catalog.NewTables([]string{"outbox"}))
			if err != nil {
				t.Fatal(err)
			}
			run := catalog.Terms{Slot: r.db.Name, Publication: "pub", Arguments: cfg.Arguments}.Fill(state.Verify().Error())
			if c := r.unmet(t)[tc.title]; c.State != Failed || !strings.Contains(run, c.Fix) || !strings.Contains(c.Fix, "outbox-cdc recover") {
				t.Errorf("check: %s\nrun:   %s", c.Fix, run)
			}
		})
	}
}
