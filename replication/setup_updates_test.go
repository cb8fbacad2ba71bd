package replication

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestSetupPublishesUpdates: changed rows are published where they are asked for, and removed
// ones never.
func TestSetupPublishesUpdates(t *testing.T) {
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY)")
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, Updates: true}
	if _, err := Setup(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	catalog, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if p := catalog.Publication; !p.Insert || !p.Update || p.Delete || p.Truncate {
		t.Errorf("publication %+v", p)
	}
}
