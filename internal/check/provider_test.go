package check

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestProviders: a real server with the roles, settings, functions and schemas of each provider, and with everything that
// a managed server may have wrong. The fixes are those of the provider.
func TestProviders(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_level": "replica"}})
	fake := kafkatest.Fake(t)
	r := newRig(t, srv, fake.Cluster)
	r.topic, r.positions = fake.Topic(t, 2, nil), fake.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	r.set("source.create", "slot")
	r.set("outbox.messages", "orders")
	r.run(t, "ALTER ROLE "+r.role+" NOREPLICATION", emitting(t, r.db, "GRANT", "TO PUBLIC"))
	for _, tt := range []struct {
		name         string
		make, remove string // statements for a feature
		wants        map[string]string
	}{
		{
			"Amazon Aurora", "SET allow_system_table_mods = on; CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql RETURN '16.4'; CREATE ROLE rds_superuser",
			"SET allow_system_table_mods = on; DROP FUNCTION pg_catalog.aurora_version(); DROP ROLE rds_superuser",
			map[string]string{"wal_level": "rds.logical_replication = 1 in the DB cluster parameter group", "role": `GRANT rds_replication TO "ROLE"`},
		},
		{
			"Amazon RDS", "CREATE ROLE rds_superuser", "DROP ROLE rds_superuser",
			map[string]string{
				"wal_level": "rds.logical_replication = 1 in the DB parameter group, and reboot", "role": `GRANT rds_replication TO "ROLE"`,
				"disk": "set max_slot_wal_keep_size = 50GB in the DB parameter group", "messages": "none, because it takes a superuser",
			},
		},
		{
			"Amazon RDS", "ALTER DATABASE DATABASE SET rds.logical_replication = 'off'", "ALTER DATABASE DATABASE RESET rds.logical_replication",
			map[string]string{"wal_level": "rds.logical_replication = 1"},
		},
		{
			"AlloyDB", "CREATE ROLE alloydbsuperuser", "DROP ROLE alloydbsuperuser",
			map[string]string{"wal_level": "the flag alloydb.logical_decoding = on", "role": `ALTER ROLE "ROLE" REPLICATION (as a member of alloydbsuperuser)`},
		},
		{
			"Google Cloud SQL", "ALTER DATABASE DATABASE SET cloudsql.logical_decoding = 'off'", "ALTER DATABASE DATABASE RESET cloudsql.logical_decoding",
			map[string]string{"wal_level": "the flag cloudsql.logical_decoding = on", "role": "(as a member of cloudsqlsuperuser)", "disk": "database flag max_slot_wal_keep_size"},
		},
		{
			"Azure Database for PostgreSQL", "CREATE ROLE azure_pg_admin", "DROP ROLE azure_pg_admin",
			map[string]string{"wal_level": "server parameter wal_level = logical", "role": "azure_pg_admin", "disk": "server parameter max_slot_wal_keep_size"},
		},
		{
			"Supabase", "CREATE ROLE supabase_admin", "DROP ROLE supabase_admin",
			map[string]string{"role": "as postgres", "disk": "supabase postgres-config update --config max_slot_wal_keep_size=50GB"},
		},
		{
			"Neon", "ALTER DATABASE DATABASE SET neon.timeline_id = 'x'", "ALTER DATABASE DATABASE RESET neon.timeline_id",
			map[string]string{"wal_level": "enable logical replication in the settings of the project", "role": "in Neon's console"},
		},
		{
			"Heroku Postgres", "CREATE SCHEMA heroku_ext", "DROP SCHEMA heroku_ext",
			map[string]string{"wal_level": "does not offer logical replication"},
		},
		{
			"DigitalOcean", "CREATE ROLE doadmin; CREATE ROLE avnadmin", "DROP ROLE doadmin, avnadmin",
			map[string]string{"role": "as doadmin", "disk": "databases API"},
		},
		{
			"Aiven", "CREATE ROLE avnadmin", "DROP ROLE avnadmin",
			map[string]string{"role": "as avnadmin", "disk": "advanced configuration of the service"},
		},
		{
			"", "", "", map[string]string{
				"wal_level": "ALTER SYSTEM SET wal_level = 'logical', and restart the server", "role": `ALTER ROLE "ROLE" REPLICATION`,
				"disk": "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()", "messages": "REVOKE EXECUTE ON FUNCTION",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := strings.NewReplacer("DATABASE DATABASE", "DATABASE "+r.db.Name, "ROLE\"", r.role+"\"")
			if tt.make != "" {
				r.run(t, strings.Split(here.Replace(tt.make), "; ")...)
				defer func() { r.run(t, strings.Split(here.Replace(tt.remove), "; ")...) }()
			}
			found := make(map[string]Condition)
			for _, c := range Run(t.Context(), r.config(t)) {
				if c.Group == Source {
					found[c.Name] = c
				}
			}
			if c := found["provider"]; !strings.HasPrefix(c.Found, tt.name) || (c.Name == "") != (tt.name == "") {
				t.Errorf("recognized %+v", c)
			}
			for name, want := range tt.wants {
				if c := found[name]; !strings.Contains(c.Fix, here.Replace(want)) {
					t.Errorf("%s: %+v, want %q", name, c, here.Replace(want))
				}
			}
		})
	}
}

// TestProviderTable: every provider is recognized by each of its features, and has a section in the documentation.
func TestProviderTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range providers {
		for _, feature := range p.features {
			if found := providerOf([]string{"role other", feature}); found.name != p.name {
				t.Errorf("%s shows %q, want %s", feature, found.name, p.name)
			}
		}
		title := strings.ReplaceAll(p.page, "-", " ")
		if !strings.Contains(strings.ToLower(string(page)), fmt.Sprintf("\n## %s\n", title)) {
			t.Errorf("%s has no section %q in docs/clouds.md", p.name, title)
		}
		if p.logical == "" || !strings.Contains(p.setting, "{name}") || p.replication == "" {
			t.Errorf("%s lacks a fix: %+v", p.name, p)
		}
	}
	if p := providerOf(nil); p.isOther() {
		t.Errorf("a server without features belongs to %s", p.name)
	}
}
