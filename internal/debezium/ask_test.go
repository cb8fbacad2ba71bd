package debezium

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Without a list of tables, an import finds the outbox tables of a real database: ordinary ones, and partitioned ones by
// their root. Tables without one of the columns, views, temporary tables and dropped columns are none.
func TestAskPostgres(t *testing.T) {
	db := pgtest.Database(t)
	const columns = "(id uuid, aggregatetype text, aggregateid text, payload jsonb, at date)"
	conn := db.Conn(t) // keeps its temporary table
	if _, err := conn.Exec(t.Context(), `
		CREATE SCHEMA "Billing";
		CREATE TABLE public.outbox `+columns+`;
		CREATE TABLE "Billing"."Out Box" `+columns+` PARTITION BY RANGE (at);
		CREATE TABLE "Billing".first PARTITION OF "Billing"."Out Box" FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') PARTITION BY LIST (aggregatetype);
		CREATE TABLE "Billing".leaf PARTITION OF "Billing".first DEFAULT;
		CREATE TABLE "Billing".other PARTITION OF "Billing"."Out Box" DEFAULT;
		CREATE TABLE orders (id uuid, payload jsonb);
		CREATE TABLE dropped `+columns+`;
		ALTER TABLE dropped DROP COLUMN aggregateid;
		CREATE VIEW seen AS SELECT * FROM outbox;
		CREATE TEMPORARY TABLE passing `+columns); err != nil {
		t.Fatal(err)
	}
	live, _, err := Ask(t.Context(), &Input{}, db.DSN, pgx.ParseConfig)
	if err != nil {
		t.Fatal(err)
	}
	var tables, leaves []string
	for _, table := range live.tables {
		tables = append(tables, table.name.String())
		if table.leaf {
			leaves = append(leaves, table.name.String())
		}
	}
	if want := []string{"Billing.Out Box", "Billing.first", "Billing.leaf", "Billing.other", "public.dropped", "public.orders", "public.outbox"}; !slices.Equal(tables, want) {
		t.Errorf("tables are %q, want %q", tables, want)
	}
	if want := []string{"Billing.leaf", "Billing.other", "public.dropped", "public.orders", "public.outbox"}; !slices.Equal(leaves, want) {
		t.Errorf("tables with rows of their own are %q, want %q", leaves, want)
	}
	for changes, want := range map[string]string{
		"-table.include.list": `tables: ['"Billing"."Out Box"', public.outbox]`,
		"-table.include.list\ntransforms.outbox.table.field.event.timestamp=at": `tables: ['"Billing"."Out Box"', public.outbox]`,
		"table.include.list=Billing.*":                                          `tables: ['"Billing"."Out Box"']`,
		"table.include.list=Billing\\.l.*":                                      `tables: ['"Billing".leaf']`,
		"table.include.list=public\\.out(.*)":                                   `tables: [public.outbox]`,
	} {
		result := imported(t, "publication.autocreate.mode=filtered\n"+changes, false, Options{Live: live})
		if !strings.Contains(string(result.YAML), want) {
			t.Errorf("%s: want %s\n%v\n%s", changes, want, result.Report.Refused(), result.YAML)
		}
	}
	for _, missing := range []string{"aggregateid", "kind"} {
		result := imported(t, "-table.include.list\ntransforms.outbox.route.by.field="+missing, false, Options{Live: &Live{tables: live.tables[4:6]}})
		if refused := result.Report.Refused(); len(refused) != 1 || !strings.Contains(refused[0].text, "none of the database has the columns") {
			t.Errorf("%s: %v", missing, refused)
		}
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }
