package catalog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		// The settings of the database must not affect the result.
		db.Exec(t, "ALTER DATABASE "+db.Name+" SET timezone = 'Asia/Tokyo'; ALTER DATABASE "+db.Name+" SET bytea_output = 'escape'")
		db.Exec(t, `
			CREATE SCHEMA "we ird";
			CREATE TYPE "we ird".mood AS ENUM ('sad', 'ok');
			CREATE DOMAIN "we ird".price AS numeric(8,3);
			CREATE DOMAIN "we ird".net AS "we ird".price NOT NULL;
			CREATE DOMAIN "we ird".short AS varchar(5) CHECK (VALUE <> 'x');
			CREATE TYPE pair AS (a int, b int);
			CREATE FUNCTION mine() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';
			CREATE TABLE outbox (
				gone int,
				id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
				key text DEFAULT 'd''k',
				n numeric(6,2) DEFAULT 1.5,
				flag boolean DEFAULT true,
				at timestamptz DEFAULT '2020-01-01 00:00:00+00',
				made timestamptz DEFAULT now(),
				today date DEFAULT CURRENT_DATE,
				raw bytea DEFAULT '\x00ff',
				count int DEFAULT 2 + 3,
				own int DEFAULT mine(),
				broken int DEFAULT 1 / 0,
				nothing text DEFAULT NULL,
				serial bigserial,
				twice int GENERATED ALWAYS AS (2 * 3) STORED,
				gross "we ird".price DEFAULT 2,
				net "we ird".net DEFAULT 3,
				short "we ird".short DEFAULT 'abc',
				mood "we ird".mood DEFAULT 'ok',
				tags varchar(7)[] DEFAULT '{a,NULL}',
				prices "we ird".price[],
				pair pair,
				span int4range
			);
			ALTER TABLE outbox DROP COLUMN gone`)
		table, columns := streamed(t, db)
		got, err := Describe(t.Context(), db.Config(t), table, columns)
		if err != nil {
			t.Fatal(err)
		}
		base := func(name string, oid uint32, modifier int32) TypeDescription {
			return TypeDescription{OID: oid, Name: name, Kind: 'b', Modifier: modifier}
		}
		array := func(name string, modifier int32, elem TypeDescription) TypeDescription {
			return TypeDescription{Name: name, Kind: 'b', Modifier: modifier, Elem: &elem}
		}
		price := base("numeric", 1700, 8<<16+3+4)
		want := []ColumnDescription{
			{Name: "id", Type: base("uuid", 2950, -1)},
			{Name: "key", Type: base("text", 25, -1), Nullable: true, Default: new("d'k")},
			{Name: "n", Type: base("numeric", 1700, 6<<16+2+4), Nullable: true, Default: new("1.50")},
			{Name: "flag", Type: base("bool", 16, -1), Nullable: true, Default: new("t")},
			{Name: "at", Type: base("timestamptz", 1184, -1), Nullable: true, Default: new("2020-01-01 00:00:00+00")},
			{Name: "made", Type: base("timestamptz", 1184, -1), Nullable: true},
			{Name: "today", Type: base("date", 1082, -1), Nullable: true},
			{Name: "raw", Type: base("bytea", 17, -1), Nullable: true, Default: new(`\x00ff`)},
			{Name: "count", Type: base("int4", 23, -1), Nullable: true, Default: new("5")},
			{Name: "own", Type: base("int4", 23, -1), Nullable: true},
			{Name: "broken", Type: base("int4", 23, -1), Nullable: true},
			{Name: "nothing", Type: base("text", 25, -1), Nullable: true},
			{Name: "serial", Type: base("int8", 20, -1)},
			{Name: "twice", Type: base("int4", 23, -1), Nullable: true},
			{Name: "gross", Type: price, Nullable: true, Default: new("2.000")},
			{Name: "net", Type: price, Default: new("3.000")},
			{Name: "short", Type: base("varchar", 1043, 9), Nullable: true}, // its CHECK may call any function
			{Name: "mood", Type: TypeDescription{Name: "mood", Kind: 'e', Modifier: -1, Labels: []string{"sad", "ok"}}, Nullable: true, Default: new("ok")},
			{Name: "tags", Type: array("_varchar", 11, base("varchar", 1043, 11)), Nullable: true, Default: new("{a,NULL}")},
			{Name: "prices", Type: array("_price", -1, price), Nullable: true},
			{Name: "pair", Type: TypeDescription{Name: "pair", Kind: 'c', Modifier: -1}, Nullable: true},
			{Name: "span", Type: TypeDescription{OID: 3904, Name: "int4range", Kind: 'r', Modifier: -1}, Nullable: true},
		}
		// The OIDs of arrays and of types that are not built in vary.
		some := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".OID" },
			cmp.Comparer(func(a, b uint32) bool { return a == 0 || b == 0 || a == b }))
		if diff := cmp.Diff(want, got, some, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Describe (-want +got):\n%s", diff)
		}
	})
}

// streamed returns table outbox, and its columns as the stream has them.
func streamed(t *testing.T, db *pgtest.DB) (table uint32, columns []Column) {
	t.Helper()
	rows, err := db.Conn(t).Query(t.Context(), `
		SELECT attrelid, attname, atttypid, atttypmod FROM pg_attribute
		WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`)
	if err != nil {
		t.Fatal(err)
	}
	var c Column
	if _, err := pgx.ForEachRow(rows, []any{&table, &c.Name, &c.TypeOID, &c.TypeModifier}, func() error {
		columns = append(columns, c)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return table, columns
}

// The columns of a row have the types that they had when it was written, also if the table or the types are gone.
func TestDescribeWhatIsGone(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `CREATE DOMAIN bin AS bytea; CREATE DOMAIN price AS numeric(8,3);
			CREATE TABLE outbox (id int PRIMARY KEY, payload bin, price price DEFAULT 1, note text NOT NULL)`)
		table, columns := streamed(t, db)
		describe := func(sql string, want ...ColumnDescription) {
			t.Helper()
			db.Exec(t, sql)
			got, err := Describe(t.Context(), db.Config(t), table, columns)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("%s: %v, -want +got:\n%s", sql, err, diff)
			}
		}
		column := func(name, typ string, oid uint32, modifier int32, nullable bool, def *string) ColumnDescription {
			return ColumnDescription{Name: name, Type: TypeDescription{OID: oid, Name: typ, Kind: 'b', Modifier: modifier}, Nullable: nullable, Default: def}
		}
		const scale = 8<<16 + 3 + 4
		describe("", column("id", "int4", 23, -1, false, nil), column("payload", "bytea", 17, -1, true, nil),
			column("price", "numeric", 1700, scale, true, new("1.000")), column("note", "text", 25, -1, false, nil))
		describe(`ALTER TABLE outbox ALTER payload TYPE text USING encode(payload, 'escape'), ALTER price TYPE int, DROP COLUMN note`,
			column("id", "int4", 23, -1, false, nil), column("payload", "bytea", 17, -1, true, nil),
			column("price", "numeric", 1700, scale, true, nil), column("note", "text", 25, -1, true, nil))
		describe(`DROP TABLE outbox; DROP DOMAIN price`, column("id", "int4", 23, -1, true, nil), column("payload", "bytea", 17, -1, true, nil),
			ColumnDescription{Name: "price", Type: TypeDescription{Modifier: -1}, Nullable: true}, column("note", "text", 25, -1, true, nil))
	})
}

func TestDescribeUnreachable(t *testing.T) {
	t.Parallel()
	cfg := pgtest.Database(t).Config(t)
	cfg.Port = 1
	if _, err := Describe(t.Context(), cfg, 1, nil); !errors.Is(err, replication.ErrUnreachable) {
		t.Errorf("Describe of no server: %v", err)
	}
}
