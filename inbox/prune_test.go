package inbox_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Prune deletes the claims that are older than its age, anywhere in the table, while writers add others.
func TestPrune(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `CREATE SCHEMA "My App"`)
		migrate(t, db, migrations.Config{Schema: `"My App"`})
		// About 500 blocks: more than one batch.
		db.Exec(t, `INSERT INTO "My App".processed_events (consumer, event_id, processed_at)
			SELECT 'c', gen_random_uuid(), now() - CASE WHEN n % 3 = 0 THEN interval '3 days' ELSE interval '1 hour' END
			FROM generate_series(1, 60000) AS n`)
		shared := pool(t, db)
		store := inbox.Store{Schema: "My App"}
		id := uuid.Must(uuid.NewV7())
		tx, err := shared.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Claim(t.Context(), tx, "c", id); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var rows [2]int64
		for i := range rows {
			wg.Go(func() {
				done, err := store.Prune(t.Context(), shared, 48*time.Hour)
				if err != nil || len(done.Created)+len(done.Dropped) > 0 {
					t.Errorf("Prune = %+v, %v", done, err)
				}
				rows[i] = done.Rows
			})
		}
		wg.Wait()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rows[0]+rows[1] != 20000 {
			t.Errorf("%d and %d rows were pruned, want 20000 together", rows[0], rows[1])
		}
		if n := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM "My App".processed_events WHERE processed_at > now() - interval '2 days'`); n != 40001 {
			t.Errorf("%d rows are left, want 40001", n)
		}
	})
}

func TestPruneOfPartitions(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv, migrations.Config{Partitioned: true})
		shared := pool(t, db)
		// Partitions of the days around the age limit, as earlier runs would have created them.
		today := time.Now().UTC().Truncate(24 * time.Hour)
		partition := func(days int) string { return "processed_events_" + today.AddDate(0, 0, days).Format("20060102") }
		for days := -5; days < 0; days++ {
			from, to := today.AddDate(0, 0, days), today.AddDate(0, 0, days+1)
			db.Exec(t, fmt.Sprintf(`CREATE TABLE %s PARTITION OF processed_events FOR VALUES FROM ('%s') TO ('%s')`, partition(days), firstID(from), firstID(to)))
			db.Exec(t, fmt.Sprintf(`INSERT INTO processed_events (consumer, event_id, processed_at) VALUES ('c', '%s', now())`, firstID(from.Add(time.Hour))))
		}
		db.Exec(t, `INSERT INTO processed_events (consumer, event_id, processed_at) VALUES
			('c', '7d444840-9dc0-41d1-b245-5ffdce74fad2', now() - interval '5 days'), ('c', '8d444840-9dc0-41d1-b245-5ffdce74fad2', now())`)
		db.Exec(t, `DROP TABLE `+partition(migrations.InitialDays))
		// An open transaction with a claim locks the table for a moment.
		tx, err := shared.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inbox.Claim(t.Context(), tx, "c", uuid.Must(uuid.NewV7())); err != nil {
			t.Fatal(err)
		}
		var done inbox.Pruned
		pruned := make(chan error, 1)
		go func() {
			var err error
			done, err = inbox.Store{}.Prune(t.Context(), shared, 72*time.Hour)
			pruned <- err
		}()
		wait.For(t, "a lock that Prune waits for", func() bool {
			return len(pruned) > 0 || pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := wait.Receive(t, "the end of Prune", pruned); err != nil {
			t.Fatal(err)
		}
		want := inbox.Pruned{
			Rows: 1, Dropped: []string{"public." + partition(-5), "public." + partition(-4)},
			Created: []string{"public." + partition(migrations.InitialDays)},
		}
		if done.Rows != want.Rows || !slices.Equal(done.Dropped, want.Dropped) || !slices.Equal(done.Created, want.Created) {
			t.Errorf("Prune = %+v, want %+v", done, want)
		}
		if n := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM processed_events`); n != 5 {
			t.Errorf("%d claims are left, want 5", n)
		}
	})
}

// firstID returns the smallest UUID with the time of at.
func firstID(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-0000-0000-000000000000"
}

func TestPruneAge(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	if _, err := (inbox.Store{}).Prune(t.Context(), pool(t, db), 59*time.Minute); err == nil {
		t.Error("a age of minutes is not an error")
	}
}
