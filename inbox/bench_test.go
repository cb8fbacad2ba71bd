package inbox_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// BenchmarkClaim measures the claims of one connection, many in a transaction and one in each.
func BenchmarkClaim(b *testing.B) {
	for _, partitioned := range []bool{false, true} {
		conn := database(b, pgtest.Server(b), migrations.Config{Partitioned: partitioned}).Conn(b)
		b.Run(fmt.Sprintf("partitioned=%t/one transaction", partitioned), func(b *testing.B) {
			tx, err := conn.Begin(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				claim(b, tx)
			}
			perSecond(b)
			if err := tx.Commit(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(fmt.Sprintf("partitioned=%t/one each", partitioned), func(b *testing.B) {
			for b.Loop() {
				err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error {
					claim(b, tx)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b)
		})
	}
}

func claim(b *testing.B, tx pgx.Tx) {
	b.Helper()
	if fresh, err := inbox.Claim(b.Context(), tx, "bench", uuid.Must(uuid.NewV7())); err != nil || !fresh {
		b.Fatal(fresh, err)
	}
}

func perSecond(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}

// BenchmarkEvent measures the cost of an event: its effect in a transaction of its own, the same with
// Claim, the same by a Processor, and a duplicate. The four take turns, a hundred events each, so that
// other load on the machine affects all of them.
func BenchmarkEvent(b *testing.B) {
	db := database(b, pgtest.Server(b), migrations.Config{})
	shared := pool(b, db)
	p := processor(b, shared, nil)
	ctx := b.Context()
	known := makeEvent(0, "k", "A")
	handle(b, p, known)
	inOne := func(f func(tx pgx.Tx) error) {
		if err := pgx.BeginTxFunc(ctx, shared, pgx.TxOptions{}, f); err != nil {
			b.Fatal(err)
		}
	}
	ways := []struct {
		name string
		do   func(e inbox.Event)
		took time.Duration
	}{
		{name: "bare", do: func(e inbox.Event) { inOne(func(tx pgx.Tx) error { return effect(ctx, tx, e) }) }},
		{name: "claim", do: func(e inbox.Event) {
			inOne(func(tx pgx.Tx) error {
				if fresh, err := inbox.Claim(ctx, tx, "bench", e.ID); err != nil || !fresh {
					return fmt.Errorf("fresh %t: %w", fresh, err)
				}
				return effect(ctx, tx, e)
			})
		}},
		{name: "processor", do: func(e inbox.Event) { handle(b, p, e) }},
		{name: "duplicate", do: func(inbox.Event) { handle(b, p, known) }},
	}
	for b.Loop() {
		for i := range ways {
			began := time.Now()
			for n := range 100 {
				ways[i].do(makeEvent(n, "k", "A"))
			}
			ways[i].took += time.Since(began)
		}
	}
	for _, w := range ways {
		b.ReportMetric(w.took.Seconds()*1e6/100/float64(b.N), w.name+"-µs/event")
	}
}

// BenchmarkPrune measures the size of processed_events, and the cost of pruning half of it. Run it with
// -benchtime=1x and -prune-rows=10000000.
func BenchmarkPrune(b *testing.B) {
	for b.Loop() {
		for _, way := range []string{"rows", "partitions"} {
			db := database(b, pgtest.Server(b), migrations.Config{Partitioned: way == "partitions"})
			fill(b, db, *pruneRows, way == "partitions")
			size := func(f string) float64 {
				return pgtest.QueryRow[float64](b, db, `SELECT sum(`+f+`(c.oid))::float8 FROM pg_class c
					WHERE relkind = 'r' AND relname LIKE 'processed\_events%'`) / float64(*pruneRows)
			}
			b.ReportMetric(size("pg_table_size"), way+"-table-B/claim")
			b.ReportMetric(size("pg_indexes_size"), way+"-index-B/claim")
			began := time.Now()
			done, err := inbox.Store{}.Prune(b.Context(), db.Conn(b), 10*24*time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), way+"-prune-s")
			if left := pgtest.QueryRow[int](b, db, `SELECT count(*) FROM processed_events`); left < *pruneRows*4/10 || left > *pruneRows*6/10 {
				b.Fatalf("%d of %d claims are left after %+v", left, *pruneRows, done)
			}
			began = time.Now()
			if done, err = (inbox.Store{}).Prune(b.Context(), db.Conn(b), 10*24*time.Hour); err != nil || done.Rows > int64(*pruneRows/100) { // claims reach the age meanwhile
				b.Fatal(done, err)
			}
			b.ReportMetric(time.Since(began).Seconds(), way+"-nothing-s")
			began = time.Now()
			db.Exec(b, `VACUUM processed_events`)
			b.ReportMetric(time.Since(began).Seconds(), way+"-vacuum-s")
		}
	}
}

var pruneRows = flag.Int("prune-rows", 100_000, "claims that BenchmarkPrune makes")

// fill inserts claims of the last 20 days, in the order of their time, with UUIDv7 ids.
func fill(b *testing.B, db *pgtest.DB, rows int, partitioned bool) {
	b.Helper()
	if partitioned {
		today := time.Now().UTC().Truncate(24 * time.Hour)
		for days := -20; days < 0; days++ {
			from := today.AddDate(0, 0, days)
			db.Exec(b, fmt.Sprintf(`CREATE TABLE processed_events_%s PARTITION OF processed_events FOR VALUES FROM ('%s') TO ('%s')`,
				from.Format("20060102"), firstID(from), firstID(from.AddDate(0, 0, 1))))
		}
	}
	_, err := db.Conn(b).Exec(context.WithoutCancel(b.Context()), `
		INSERT INTO processed_events (consumer, event_id, processed_at)
		SELECT 'notifications', (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid, at
		FROM (SELECT n, now() - interval '20 days' + n * interval '20 days' / $1::int AS at FROM generate_series(1, $1::int) AS n) AS t`, rows)
	if err != nil {
		b.Fatal(err)
	}
	db.Exec(b, `VACUUM ANALYZE processed_events`)
}
