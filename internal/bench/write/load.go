package write

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// A variant is a way to write an event, with its own table.
type variant struct {
	name  string
	table string // empty: none
	alter string // what is done to the table, %s
	write func(ctx context.Context, tx pgx.Tx, w *outbox.Writer, e outbox.Event) error
}

func variants() []variant {
	write := func(ctx context.Context, tx pgx.Tx, w *outbox.Writer, e outbox.Event) error {
		return w.Write(ctx, tx, e)
	}
	return []variant{
		{name: "none", write: func(context.Context, pgx.Tx, *outbox.Writer, outbox.Event) error { return nil }},
		{name: "one statement more (SELECT 1)", write: func(ctx context.Context, tx pgx.Tx, _ *outbox.Writer, _ outbox.Event) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}},
		{name: "Write", table: "outbox", write: write},
		{name: "Write, no primary key", table: "outbox_bare", alter: `ALTER TABLE %[1]s DROP CONSTRAINT %[1]s_pkey`, write: write},
		{name: "Write, partitioned by day", table: "outbox_days", write: write},
		{name: "WriteMessage", write: func(ctx context.Context, tx pgx.Tx, w *outbox.Writer, e outbox.Event) error {
			return w.WriteMessage(ctx, tx, e)
		}},
		{name: "COPY of one", table: "outbox_copy", write: copyOne},
	}
}

// copyOne is Write with COPY for a single event.
func copyOne(ctx context.Context, tx pgx.Tx, _ *outbox.Writer, e outbox.Event) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"outbox_copy"}, []string{"id", "aggregatetype", "aggregateid", "type", "payload"},
		pgx.CopyFromRows([][]any{{pgtype.UUID{Bytes: id, Valid: true}, e.AggregateType, e.AggregateID, e.Type, e.Payload}}))
	return err
}

// A load is a database with pgbench's tables.
type load struct {
	Options
	pool     *pgxpool.Pool             // for statements that are not measured
	conns    []*pgx.Conn               // of the clients
	backends []int                     // process ids of their backends
	writers  map[string]*outbox.Writer // by variant
}

func newLoad(ctx context.Context, dsn string, o Options) (*load, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	l := &load{Options: o, pool: pool, writers: make(map[string]*outbox.Writer)}
	for range o.Clients {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			l.close(ctx)
			return nil, err
		}
		l.conns, l.backends = append(l.conns, conn), append(l.backends, int(conn.PgConn().PID()))
	}
	// As `pgbench -i` makes them: https://www.postgresql.org/docs/current/pgbench.html
	for _, statement := range []string{
		`CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor = 100)`,
		`CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor = 100)`,
		`CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor = 100)`,
		`CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))`,
		fmt.Sprintf(`INSERT INTO pgbench_branches SELECT n, 0, '' FROM generate_series(1, %d) AS n`, o.Scale),
		fmt.Sprintf(`INSERT INTO pgbench_tellers SELECT n, (n - 1) / 10 + 1, 0, '' FROM generate_series(1, %d) AS n`, 10*o.Scale),
		fmt.Sprintf(`INSERT INTO pgbench_accounts SELECT n, (n - 1) / 100000 + 1, 0, '' FROM generate_series(1, %d) AS n`, 100_000*o.Scale),
		`ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)`,
		`ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)`,
		`ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)`,
		`VACUUM ANALYZE`,
		`CHECKPOINT`,
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			l.close(ctx)
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
	}
	return l, nil
}

func (l *load) close(ctx context.Context) {
	for _, conn := range l.conns {
		_ = conn.Close(ctx)
	}
	l.pool.Close()
}

// prepare creates the table of a variant.
func (l *load) prepare(ctx context.Context, v variant) error {
	cfg := outbox.Config{}
	if v.table != "" {
		cfg.Table = pgx.Identifier{v.table}
		db := stdlib.OpenDBFromPool(l.pool)
		defer db.Close()
		if _, err := migrations.Up(ctx, db, migrations.Config{Table: v.table, Partitioned: v.table == "outbox_days"}); err != nil {
			return err
		}
	}
	if v.alter != "" {
		if _, err := l.pool.Exec(ctx, fmt.Sprintf(v.alter, v.table)); err != nil {
			return err
		}
	}
	var err error
	l.writers[v.name], err = outbox.NewWriter(cfg)
	return err
}

// A sample is the result of a variant in a round.
type sample struct {
	perSecond float64 // transactions per second
	commits   []time.Duration
	wal       float64 // bytes of WAL per transaction
	server    float64 // CPU time of the backends per transaction, in nanoseconds; 0: unknown
	client    float64 // CPU time of this process per transaction, in nanoseconds; 0: unknown
}

// run lets all clients run the transaction of a variant for one round.
func (l *load) run(ctx context.Context, v variant) (sample, error) {
	before, err := l.walEnd(ctx)
	if err != nil {
		return sample{}, err
	}
	server, client := cpu(l.backends...), cpu(os.Getpid())
	var wg sync.WaitGroup
	commits, errs := make([][]time.Duration, len(l.conns)), make([]error, len(l.conns))
	start := time.Now()
	for i, conn := range l.conns {
		wg.Go(func() { commits[i], errs[i] = l.repeat(ctx, conn, v, start.Add(l.Round)) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	server, client = cpu(l.backends...)-server, cpu(os.Getpid())-client
	var s sample
	for i := range commits {
		if errs[i] != nil {
			return s, errs[i]
		}
		s.commits = append(s.commits, commits[i]...)
	}
	after, err := l.walEnd(ctx)
	if err != nil {
		return s, err
	}
	n := float64(len(s.commits))
	s.perSecond, s.wal, s.server, s.client = n/elapsed.Seconds(), (after-before)/n, float64(server)/n, float64(client)/n
	return s, nil
}

// walEnd returns how many bytes of WAL have been written.
func (l *load) walEnd(ctx context.Context) (bytes float64, err error) {
	err = l.pool.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&bytes)
	return bytes, err
}

// repeat runs transactions on one connection until the deadline. It returns the durations of their
// commits.
func (l *load) repeat(ctx context.Context, conn *pgx.Conn, v variant, deadline time.Time) (commits []time.Duration, err error) {
	for time.Now().Before(deadline) {
		took, err := l.transaction(ctx, conn, v)
		if err != nil {
			return nil, err
		}
		commits = append(commits, took)
	}
	return commits, nil
}

// cpu returns the CPU time of the threads of processes, or 0 if the kernel does not provide it.
func cpu(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		sum += measure.ThreadTime(pid)
	}
	return sum
}

// transaction runs pgbench's "TPC-B (sort of)" transaction, with the event of v at its end.
func (l *load) transaction(ctx context.Context, conn *pgx.Conn, v variant) (commit time.Duration, err error) {
	aid, bid, tid := 1+rand.IntN(100_000*l.Scale), 1+rand.IntN(l.Scale), 1+rand.IntN(10*l.Scale)
	delta := rand.IntN(10_001) - 5000
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing after Commit
	if _, err := tx.Exec(ctx, `UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2`, delta, aid); err != nil {
		return 0, err
	}
	var balance int
	if err := tx.QueryRow(ctx, `SELECT abalance FROM pgbench_accounts WHERE aid = $1`, aid).Scan(&balance); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2`, delta, tid); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2`, delta, bid); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx,
		`INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)`, tid, bid, aid, delta); err != nil {
		return 0, err
	}
	e := outbox.Event{
		AggregateType: "account", AggregateID: fmt.Sprint(aid), Type: "BalanceChanged",
		Payload: fmt.Appendf(nil, `{"account": %d, "teller": %d, "branch": %d, "delta": %d, "balance": %d}`, aid, tid, bid, delta, balance),
	}
	if err := v.write(ctx, tx, l.writers[v.name], e); err != nil {
		return 0, err
	}
	before := time.Now()
	err = tx.Commit(ctx)
	return time.Since(before), err
}
