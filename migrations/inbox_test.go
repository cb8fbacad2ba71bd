package migrations

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Up adds the inbox to a schema with an outbox, and Down drops it again.
func TestInboxBesideAnOutbox(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, form := range []bool{false, true} {
			db := pgtest.DatabaseOn(t, srv)
			p, ctx := pool(t, db), t.Context()
			inbox := Config{Part: Inbox, Partitioned: form}
			if _, err := Up(ctx, p, Config{}); err != nil {
				t.Fatal(err)
			}
			before := objects(t, db)
			if got, err := Status(ctx, p, inbox); err != nil || len(got) != 1 || !got[0].AppliedAt.IsZero() {
				t.Fatalf("Status = %v, %v", got, err)
			}
			want := []Migration{{Version: 1, Name: "00001_inbox", AppliedAt: time.Now()}}
			for i := range 2 {
				got, err := Up(ctx, p, inbox)
				if diff := cmp.Diff(want[:1-i], got, anyTime, equateEmpty); err != nil || diff != "" {
					t.Fatalf("Up, time %d: %v (-want +got):\n%s", i+1, err, diff)
				}
			}
			for _, table := range []string{claimsTable, eventsTable} {
				if !slices.Contains(objects(t, db), table) {
					t.Errorf("there is no table %s among %s", table, objects(t, db))
				}
				if n := pgtest.QueryRow[int](t, db, `
					SELECT count(*) FROM pg_attribute
					WHERE attrelid = $1::text::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL`, table); n != 0 {
					t.Errorf("%d columns of %s have no comment", n, table)
				}
			}
			if got, err := Up(ctx, p, Config{}); err != nil || len(got) != 0 {
				t.Errorf("Up of the outbox = %v, %v", got, err)
			}
			if _, err := Down(ctx, p, Config{Part: Inbox}, 0); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, objects(t, db)); diff != "" {
				t.Errorf("after Down (-before +after):\n%s", diff)
			}
		}
	})
}

// The SQL of Print creates the same objects as Up, in another schema too.
func TestPrintedInbox(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{Part: Inbox, Schema: `"My App"`}, {Part: Inbox, Schema: `"My App"`, Partitioned: true}} {
		up, printed := pgtest.Database(t), pgtest.Database(t)
		for _, db := range []*pgtest.DB{up, printed} {
			db.Exec(t, `CREATE SCHEMA "My App"`)
		}
		printsWhatItDoes(t, cfg, up, printed, `"My App".outbox_cdc_migrations`, func() {})
	}
}

// The UTC day of its UUIDv7 determines the partition of a claim.
func TestPartitionsOfAnInboxAreDaysOfTheIDs(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		if _, err := Up(t.Context(), pool(t, db), Config{Part: Inbox, Partitioned: true}); err != nil {
			t.Fatal(err)
		}
		today := time.Now().UTC().Truncate(24 * time.Hour)
		for id, want := range map[uuid.UUID]string{
			madeAt(today): claimsTable + today.Format("_20060102"),
			madeAt(today.Add(24*time.Hour - time.Millisecond)):     claimsTable + today.Format("_20060102"),
			madeAt(today.AddDate(0, 0, 3)):                         claimsTable + today.AddDate(0, 0, 3).Format("_20060102"),
			madeAt(today.AddDate(0, 0, InitialDays+1)):             claimsTable + "_default",
			madeAt(today.Add(-time.Millisecond)):                   claimsTable + "_default",
			uuid.MustParse("7d444840-9dc0-41d1-b245-5ffdce74fad2"): claimsTable + "_default", // of version 4
		} {
			db.Exec(t, `INSERT INTO processed_events (consumer, event_id) VALUES ('test', $1)`, id)
			if got := pgtest.QueryRow[string](t, db, `SELECT tableoid::regclass::text FROM processed_events WHERE event_id = $1`, id); got != want {
				t.Errorf("the claim of %s is in %s, want %s", id, got, want)
			}
		}
	})
}

// madeAt returns a UUIDv7 with a given time.
func madeAt(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

func TestNamesOfParts(t *testing.T) {
	for want, cfg := range map[string]Config{
		`part "x": want outbox or inbox`:                                        {Part: "x"},
		`table events: the tables of an inbox have fixed names`:                 {Part: Inbox, Table: "events"},
		`schema "a.b": want one name`:                                           {Part: Inbox, Schema: "a.b"},
		`schema "1": not an SQL identifier; put unusual names in double quotes`: {Part: Inbox, Schema: "1"},
		`schema app: put the schema of an outbox into the name of its table`:    {Schema: "app"},
	} {
		if err := Print(io.Discard, cfg); err == nil || err.Error() != want {
			t.Errorf("Print(%+v) = %v, want %s", cfg, err, want)
		}
	}
}
