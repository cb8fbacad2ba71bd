package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Workload writes events in transactions of 1 to MaxRows rows. A share of the transactions is rolled
// back as a whole or to a savepoint. Each writer has its own connection and its own keys.
type Workload struct {
	dsn      string
	Writers  int
	keys     int     // of each writer
	MaxRows  int     // of a transaction
	rollback float64 // share of transactions that end in ROLLBACK
	Pace     time.Duration

	// Beside is a statement that runs after the INSERT of events, in the same transaction and with the same arguments: aggregate
	// type, type, ids, keys and payloads. Empty: none.
	Beside string

	seed uint64

	mu        sync.Mutex
	committed map[string]int
}

func newWorkload(dsn string) *Workload {
	writers := 2
	if need.Full() {
		writers = 4
	}
	return &Workload{
		dsn: dsn, Writers: writers, keys: 64, MaxRows: 50, rollback: 0.5,
		seed: rand.Uint64(), committed: map[string]int{},
	}
}

// Snapshot returns the number of committed events of every key.
func (w *Workload) Snapshot() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.committed)
}

// Total returns the number of committed events.
func (w *Workload) Total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, events := range w.committed {
		n += events
	}
	return n
}

// Run writes until about rows events are committed or ctx is done. It replaces lost connections, and reads
// the outcome of an interrupted COMMIT from the table.
func (w *Workload) Run(ctx context.Context, t *testing.T, rows int) {
	t.Helper()
	t.Logf("workload seed %d", w.seed)
	writers := min(w.Writers, 1+rows/200) // a connection costs Postgres more than two hundred rows
	var g errgroup.Group
	for i := range writers {
		g.Go(func() error {
			writer := &writer{Workload: w, rng: rand.New(rand.NewPCG(w.seed, uint64(i))), next: map[string]int{}}
			for k := range w.keys {
				writer.keyNames = append(writer.keyNames, fmt.Sprintf("order-%d-%d", i, k))
			}
			return writer.run(ctx, rows/writers)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Giant writes rows events in one transaction.
func (w *Workload) Giant(ctx context.Context, t *testing.T, rows int) {
	t.Helper()
	keys := make([]string, 1000)
	for k := range keys {
		keys[k] = fmt.Sprintf("giant-%d", k)
	}
	w.Transaction(ctx, t, keys, func(_ pgx.Tx, put func(n int) error) error {
		for left := rows; left > 0; left -= 10_000 {
			if err := put(min(left, 10_000)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Transaction runs f in a transaction. f calls put to insert the next n events of the given keys. No other
// writer may write events of these keys.
func (w *Workload) Transaction(ctx context.Context, t *testing.T, keys []string, f func(tx pgx.Tx, put func(n int) error) error) {
	t.Helper()
	one := &writer{Workload: w, rng: rand.New(rand.NewPCG(w.seed, 0)), keyNames: keys}
	conn, err := pgx.Connect(ctx, w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	committed, next := w.Snapshot(), map[string]int{}
	for _, key := range keys {
		next[key] = committed[key]
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return f(tx, func(n int) error { return one.insert(ctx, tx, eventType, n, next) })
	})
	if err != nil {
		t.Fatal(err)
	}
	one.account(next)
}

type writer struct {
	*Workload
	rng      *rand.Rand
	keyNames []string
	next     map[string]int // committed events per key
	conn     *pgx.Conn
	backend  backend // the backend of conn, or of the previous connection
}

// A backend identifies a backend process of Postgres. The operating system may reuse its PID.
type backend struct {
	pid   int
	start time.Time
}

func (w *writer) run(ctx context.Context, rows int) error {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx))
		}
	}()
	var failing time.Time
	for written := 0; written < rows && ctx.Err() == nil; {
		n, err := w.write(ctx)
		written += n
		switch {
		case err == nil:
			failing = time.Time{}
		case ctx.Err() != nil:
		case w.conn != nil && !w.conn.IsClosed(): // an error such as a missing table partition: nothing was committed
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) > time.Minute {
				return fmt.Errorf("writer is refused: %w", err)
			}
		default:
			if err := w.recover(ctx); err != nil {
				return err
			}
		}
		if w.Pace > 0 {
			time.Sleep(time.Duration(w.rng.Int64N(2 * int64(w.Pace))))
		}
	}
	if ctx.Err() != nil {
		return w.recover(context.WithoutCancel(ctx)) // the end of ctx may have interrupted the last COMMIT
	}
	return nil
}

// write writes a transaction and returns how many events it committed.
func (w *writer) write(ctx context.Context) (int, error) {
	if w.conn == nil {
		return 0, errors.New("not connected")
	}
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if w.rng.Float64() < w.rollback {
		if err := w.insert(ctx, tx, PhantomType, 1+w.rng.IntN(w.MaxRows), maps.Clone(w.next)); err != nil {
			return 0, err
		}
		return 0, tx.Rollback(ctx)
	}
	next := maps.Clone(w.next)
	n := 1 + w.rng.IntN(w.MaxRows)
	if w.rng.IntN(8) == 0 {
		sp, err := tx.Begin(ctx)
		if err != nil {
			return 0, err
		}
		if err := w.insert(ctx, sp, PhantomType, 1+w.rng.IntN(5), maps.Clone(next)); err != nil {
			return 0, err
		}
		if err := sp.Rollback(ctx); err != nil {
			return 0, err
		}
	}
	if err := w.insert(ctx, tx, eventType, n, next); err != nil {
		return 0, err
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, err
	}
	w.account(next)
	return n, nil
}

func (w *writer) account(next map[string]int) {
	w.next = next
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.committed, next)
}

// insert adds n events of random keys and counts them in next.
func (w *writer) insert(ctx context.Context, tx pgx.Tx, eventType string, n int, next map[string]int) error {
	ids, keys, payloads := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i := range n {
		key := w.keyNames[w.rng.IntN(len(w.keyNames))]
		e := Event{key, next[key]}
		next[key]++
		ids[i], keys[i], payloads[i] = e.ID(), key, string(e.payload())
	}
	args := []any{aggregateType, eventType, ids, keys, payloads}
	_, err := tx.Exec(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT e.id, $1, e.key, $2, e.payload::jsonb FROM unnest($3::uuid[], $4::text[], $5::text[]) WITH ORDINALITY AS e (id, key, payload, i) ORDER BY e.i`,
		args...)
	if err == nil && w.Beside != "" {
		_, err = tx.Exec(ctx, w.Beside, args...)
	}
	return err
}

// recover reconnects when the server accepts connections, and reads the committed events from the table.
// Only the table shows the outcome of an interrupted COMMIT.
func (w *writer) recover(ctx context.Context) error {
	if w.conn != nil {
		_ = w.conn.Close(ctx)
		w.conn = nil
	}
	deadline := time.Now().Add(wait.Patience())
	for {
		err := w.reconnect(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // nothing is left to recover for
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("writer cannot reach the server: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *writer) reconnect(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.dsn)
	if err != nil {
		return err
	}
	if err := w.replace(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	rows, _ := conn.Query(ctx, `SELECT aggregateid, count(*)::int FROM outbox WHERE aggregateid = ANY($1) GROUP BY 1`, w.keyNames)
	next := map[string]int{}
	for _, key := range w.keyNames {
		next[key] = 0 // after a failover, the new primary may have fewer events
	}
	var key string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { next[key] = n; return nil }); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	w.account(next)
	w.conn = conn
	return nil
}

// replace records the backend of conn. It fails while the backend of the previous connection still
// exists, because that backend may still execute an interrupted COMMIT.
func (w *writer) replace(ctx context.Context, conn *pgx.Conn) error {
	var working bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2)`, w.backend.pid, w.backend.start).Scan(&working)
	if err != nil {
		return err
	}
	if working {
		return errors.New("the previous session still exists")
	}
	return conn.QueryRow(ctx, `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&w.backend.pid, &w.backend.start)
}
