package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/pgserver"
	"github.com/outbox-cdc/outbox-cdc/internal/pgtest"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// BenchmarkWrite is Write alone, n events at a time, within one transaction.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 2, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			conn := database(b, pgtest.Server(b)).Conn(b)
			events := make([]outbox.Event, n)
			for i := range events {
				events[i] = event(func(e *outbox.Event) { e.Payload = []byte(`{"order": "0192-77", "cents": 4200, "items": [1, 2, 3]}`) })
			}
			tx, err := conn.Begin(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := outbox.Write(b.Context(), tx, events...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
			if err := tx.Rollback(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkTransaction is what an application pays: the TPC-B-like transaction of pgbench, without
// and with one event, for one client. What a commit waits for is the disk under the server's
// directory.
func BenchmarkTransaction(b *testing.B) {
	srv := pgtest.Start(b, pgserver.Config{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	db := database(b, srv)
	db.Exec(b, `
		CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84)) WITH (fillfactor = 90);
		CREATE TABLE tellers (tid int PRIMARY KEY, tbalance int);
		CREATE TABLE branches (bid int PRIMARY KEY, bbalance int);
		CREATE TABLE history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
		INSERT INTO accounts SELECT n, 1, 0, '' FROM generate_series(1, 100000) AS n;
		INSERT INTO tellers SELECT n, 0 FROM generate_series(1, 10) AS n;
		INSERT INTO branches VALUES (1, 0)`)
	db.Exec(b, `VACUUM ANALYZE`)
	for _, events := range []int{0, 1} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			conn := db.Conn(b)
			n := 0
			for b.Loop() {
				n++
				inTx(b, conn, func(ctx context.Context, tx pgx.Tx) error {
					aid, tid := n*7919%100_000+1, n%10+1
					if err := tpcb(ctx, tx, aid, tid); err != nil || events == 0 {
						return err
					}
					return outbox.Write(ctx, tx, outbox.Event{
						AggregateType: "account", AggregateID: fmt.Sprint(aid), Type: "BalanceChanged",
						Payload: fmt.Appendf(nil, `{"account": %d, "teller": %d, "delta": 1}`, aid, tid),
					})
				})
			}
		})
	}
}

func tpcb(ctx context.Context, tx pgx.Tx, aid, tid int) error {
	var balance int
	if _, err := tx.Exec(ctx, `UPDATE accounts SET abalance = abalance + 1 WHERE aid = $1`, aid); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, `SELECT abalance FROM accounts WHERE aid = $1`, aid).Scan(&balance); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE tellers SET tbalance = tbalance + 1 WHERE tid = $1`, tid); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE branches SET bbalance = bbalance + 1 WHERE bid = 1`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO history VALUES ($1, 1, $2, 1, now(), '')`, tid, aid)
	return err
}
