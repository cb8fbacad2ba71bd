package catalog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A role without rights on the schema finds a table by its name, as SQL reads it.
func TestOutboxNames(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	role := db.Name
	db.Exec(t, `CREATE ROLE `+role+` LOGIN; CREATE TABLE outbox (id int);
		CREATE SCHEMA "App"; CREATE TABLE "App"."Events" (id int); CREATE TABLE "App".outbox (id int); CREATE TABLE "App".hidden (id int);
		CREATE PUBLICATION pub FOR TABLE "App"."Events", "App".hidden`)
	defer db.Exec(t, "DROP ROLE "+role)
	cfg := db.Config(t)
	cfg.User = role
	for name, want := range map[string]string{
		"outbox": "public.outbox", "OUTBOX": "public.outbox", "public.outbox": "public.outbox", `"public" . outbox`: "public.outbox",
		`"App"."Events"`: "App.Events", `"App".outbox`: "App.outbox", `App.outbox`: "", "hidden": "App.hidden", `"Events"`: "App.Events", "events": "",
		db.Name + ".public.outbox": "public.outbox", "nobody": "",
	} {
		state, err := Inspect(t.Context(), cfg, "pub", "slot", NewTables([]string{name}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, p := range state.Outboxes[0].Parts {
			got += fmt.Sprint(p.Schema, ".", p.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"", "a b", "a.b.c.d", "other.public.outbox", `"open`} {
		if _, err := Inspect(t.Context(), cfg, "pub", "slot", NewTables([]string{name})); !errors.Is(err, replication.ErrConfig) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
