package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// The stream, a Copy, Rows and LastRows have the same text for every type whose text depends on a setting, whatever the
// database and the role set. The text is that of the settings of [replication.Reading], and names have their schema.
func TestTextOfTypes(t *testing.T) {
	t.Parallel()
	pgtest.EachInstall(t, func(t *testing.T, i pgserver.Install) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: i.BinDir, Locales: pgtest.Locales(t, "pt_BR.UTF-8", "nl_NL.UTF-8", "ja_JP.UTF-8")})
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `
			CREATE SCHEMA app;
			CREATE FUNCTION app.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
			CREATE FUNCTION app.eq(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
			CREATE OPERATOR app.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = app.eq);
			CREATE TYPE app.pair AS (m money, d timestamptz, c regclass);
			CREATE DOMAIN app.price AS money;
			CREATE TYPE app.span AS RANGE (subtype = money);
			CREATE TEXT SEARCH CONFIGURATION app.conf (COPY = pg_catalog.simple);
			CREATE TEXT SEARCH DICTIONARY app.dict (TEMPLATE = pg_catalog.simple);
			CREATE COLLATION app.coll FROM "C";`)
		const table = "app.outbox"
		db.Exec(t, `CREATE TABLE app.outbox (id int PRIMARY KEY)`)
		want := []string{"1"}
		for _, c := range []struct{ typ, value, text string }{
			{"money", "12.50::numeric::money", "$12.50"},
			{"money[]", "ARRAY[(-1234.5)::numeric::money, 0::money]", `{"-$1,234.50",$0.00}`},
			{"app.price", "7::money", "$7.00"},
			{"app.span", "app.span(1::money, 2000::money)", `[$1.00,"$2,000.00")`},
			{"app.pair", "ROW(1::money, '2024-02-29 12:34:56.5+00', 'app.outbox')", `($1.00,"2024-02-29 12:34:56.5+00",app.outbox)`},
			{"date", "DATE '2024-02-01'", "2024-02-01"},
			{"date[]", "ARRAY[DATE '2024-02-01', DATE 'infinity', DATE '0044-03-15 BC']", `{2024-02-01,infinity,"0044-03-15 BC"}`},
			{"time", "TIME '01:02:03.5'", "01:02:03.5"},
			{"timetz", "TIMETZ '01:02:03+05:30'", "01:02:03+05:30"},
			{"timestamp", "TIMESTAMP '2024-02-01 01:02:03'", "2024-02-01 01:02:03"},
			{"timestamptz", "TIMESTAMPTZ '2024-07-01 01:02:03+02'", "2024-06-30 23:02:03+00"},
			{"tstzrange", "tstzrange('2024-07-01 01:02:03+02', NULL)", `["2024-06-30 23:02:03+00",)`},
			{"timestamptz[]", "ARRAY[TIMESTAMPTZ '2024-07-01 01:02:03+02']", `{"2024-06-30 23:02:03+00"}`},
			{"interval", "INTERVAL '1 year -2 days 03:04:05.6'", "1 year -2 days +03:04:05.6"},
			{"interval[]", "ARRAY[INTERVAL '1 day']", `{"1 day"}`},
			{"bytea", `'\x00ff41'::bytea`, `\x00ff41`},
			{"bytea[]", `ARRAY['\x00ff41'::bytea]`, `{"\\x00ff41"}`},
			{"float4", "0.1::float4", "0.1"},
			{"float8", "123456.123456789::float8", "123456.123456789"},
			{"float8[]", "ARRAY[1e300::float8, 0.1]", "{1e+300,0.1}"},
			{"numeric", "1234.50", "1234.50"}, // lc_numeric is for to_char
			{"point", "point(0.1, 123456.123456789)", "(0.1,123456.123456789)"},
			{"box", "box(point(0.1, 1), point(0, 0))", "(0.1,1),(0,0)"},
			{"xml", `'<?xml version="1.0" encoding="LATIN1"?><a>é</a>'::xml`, `<a>é</a>`}, // without xmlbinary and xmloption
			{"jsonb", `'{"a": 1.50}'`, `{"a": 1.50}`},
			{"text", "'Zoë €'", "Zoë €"},
			{"tsvector", "'a:1 b:2'::tsvector", "'a':1 'b':2"},
			{"regclass", "'app.outbox'::regclass", "app.outbox"},
			{"regclass[]", "ARRAY['app.outbox'::regclass, 'pg_class'::regclass]", "{app.outbox,pg_class}"},
			{"regtype", "'app.pair'::regtype", "app.pair"},
			{"regproc", "'app.f'::regproc", "app.f"},
			{"regprocedure", "'app.f(int)'::regprocedure", "app.f(integer)"},
			{"regoper", "'app.==='::regoper", "app.==="},
			{"regoperator", "'app.===(int,int)'::regoperator", "app.===(integer,integer)"},
			{"regconfig", "'app.conf'::regconfig", "app.conf"},
			{"regdictionary", "'app.dict'::regdictionary", "app.dict"},
			{"regcollation", "'app.coll'::regcollation", "app.coll"},
			{"regnamespace", "'app'::regnamespace", "app"},
			{"regrole", "('postgres' || '')::text::regrole", "postgres"},
		} {
			column := "c" + pgtest.QueryRow[string](t, db, "SELECT (count(*))::text FROM pg_attribute WHERE attrelid = 'app.outbox'::regclass AND attnum > 0")
			db.Exec(t, "ALTER TABLE app.outbox ADD COLUMN "+column+" "+c.typ+" DEFAULT "+c.value)
			want = append(want, c.text)
		}
		db.Exec(t, "INSERT INTO app.outbox VALUES (1)")
		cfg := replication.Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name}
		cfg.Conn.User = db.Role(t, `
			GRANT USAGE ON SCHEMA app TO $ROLE; GRANT SELECT ON app.outbox TO $ROLE; ALTER ROLE $ROLE REPLICATION;
			ALTER ROLE $ROLE SET lc_monetary = 'nl_NL.UTF-8'; ALTER DATABASE $ROLE SET lc_monetary = 'pt_BR.UTF-8';
			ALTER ROLE $ROLE SET search_path = app, public; ALTER ROLE $ROLE SET datestyle = 'SQL, DMY'; ALTER ROLE $ROLE SET intervalstyle = 'iso_8601';
			ALTER ROLE $ROLE SET timezone = 'Asia/Tokyo'; ALTER ROLE $ROLE SET bytea_output = 'escape'; ALTER ROLE $ROLE SET extra_float_digits = -15;
			ALTER ROLE $ROLE SET xmlbinary = hex; ALTER ROLE $ROLE SET xmloption = document; ALTER ROLE $ROLE SET quote_all_identifiers = on;
			ALTER ROLE $ROLE SET client_encoding = LATIN1; ALTER ROLE $ROLE SET array_nulls = off; ALTER ROLE $ROLE SET standard_conforming_strings = off`)
		same := func(how string, got []string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", how, diff)
			}
		}
		owner := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{table}}
		if _, err := Setup(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		c, err := openCopy(t, cfg, []string{"outbox"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		err = c.Rows(t.Context(), &c.Tables[0], func(values [][]byte) error { same("copy", texts(values)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		_, rows, err := LastRows(t.Context(), cfg, "outbox", 1) // found in the search_path
		if err != nil {
			t.Fatal(err)
		}
		same("last rows", texts(rows[0]))
		selected, err := Select(t.Context(), cfg, Selection{Table: "outbox", ID: []string{"id"}, Order: []string{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		defer selected.Close(t.Context())
		if err := selected.Each(t.Context(), func(values [][]byte) error { same("rows", texts(values)); return nil }); err != nil {
			t.Fatal(err)
		}
		s := &source{DB: db, cfg: cfg}
		stream := s.start(t)
		db.Exec(t, "INSERT INTO app.outbox VALUES (2)")
		row := string(readWhile(t, stream, func(data []byte) bool { return data[0] != 'I' }))
		for _, text := range want[1:] {
			if !strings.Contains(row, "t\x00\x00\x00"+string(rune(len(text)))+text) {
				t.Errorf("the stream has %q, not %q", row, text)
			}
		}
	})
}

func texts(values [][]byte) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// Describe returns the decimal places of money for a currency that does not have 2. The stream then has the text of the
// database's locale.
func TestPlacesOfMoney(t *testing.T) {
	need.FullRun(t, "a server with other locales; TestTextOfTypes has one always")
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Locales: pgtest.Locales(t, "pt_BR.UTF-8", "nl_NL.UTF-8", "ja_JP.UTF-8")})
	for locale, want := range map[string]*int{"C": nil, "pt_BR.UTF-8": nil, "ja_JP.UTF-8": new(0)} {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "ALTER DATABASE "+db.Name+" SET lc_monetary = '"+locale+"'; CREATE TABLE outbox (price money, prices money[], at date)")
		table, asStreamed := streamed(t, db)
		columns, err := Describe(t.Context(), db.Config(t), table, asStreamed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]*int{want, want, nil}, []*int{columns[0].Type.MoneyPlaces, columns[1].Type.Elem.MoneyPlaces, columns[2].Type.MoneyPlaces}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", locale, diff)
		}
	}
}
