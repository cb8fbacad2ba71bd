package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// wantLock fails the test unless err is a LockError with the texts. Before Postgres 16, a reader of a publication does not wait for
// locks on its tables, and the error must be nil.
func wantLock(t *testing.T, version int, what string, err error, texts ...string) {
	t.Helper()
	_, ok := errors.AsType[*LockError](err)
	if version < 16 {
		if err != nil {
			t.Errorf("%s on version %d: %v", what, version, err)
		}
		return
	}
	if !ok || !errors.Is(err, replication.ErrBusy) || errors.Is(err, replication.ErrUnreachable) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q is not in: %v", what, text, err)
		}
	}
}

// From Postgres 16 on, a reader of the tables of a publication waits for a lock on each. The error of every reader names the
// table, and the transaction that holds the lock, also if the table is a partition.
func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, "CREATE TABLE parts (id int) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF parts DEFAULT; CREATE TABLE other (id int)")
		s.Exec(t, "ALTER PUBLICATION pub ADD TABLE parts; ALTER PUBLICATION pub SET (publish_via_partition_root = false)")
		locker := s.Conn(t)
		exec := func(sql string) {
			t.Helper()
			if _, err := locker.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		process := fmt.Sprintf("process %d: user \"postgres\", database %q, application \"deploy\", idle in transaction, LOCK TABLE, started ", locker.PgConn().PID(), s.Name)
		version := srv.Install().Major

		exec("SET application_name = 'deploy'")
		exec("BEGIN")
		exec("LOCK TABLE other, outbox IN ACCESS EXCLUSIVE MODE")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a reader waits for two thirds of it
		defer cancel()
		readers := map[string]func() error{
			"Inspect": func() error {
				_, err := Inspect(ctx, s.cfg.Conn, "pub", s.cfg.Slot, NewTables([]string{"outbox"}))
				return err
			},
			"Reader": func() error {
				v := NewReader(s.cfg.Conn)
				defer v.Close(ctx)
				_, err := v.Inspect(ctx, "pub", s.cfg.Slot, []string{"outbox"})
				return err
			},
			"Select, which reads in a transaction": func() error {
				rows, err := Select(ctx, s.cfg, Selection{Table: "outbox", ID: []string{"id"}})
				if err == nil {
					rows.Close(ctx)
				}
				return err
			},
			"Setup": func() error {
				cfg := s.setup("outbox")
				cfg.lockTimeout = 2 * time.Second
				_, err := Setup(ctx, cfg)
				return err
			},
		}
		delete(readers, map[bool]string{true: "Select, which reads in a transaction"}[version < 16]) // the rows themselves are locked
		var all errgroup.Group
		for what, read := range readers {
			all.Go(func() error {
				wantLock(t, version, what, read(), "it waited ", "s for a lock on table public.outbox; commit", process)
				return nil
			})
		}
		_ = all.Wait()
		exec("ROLLBACK")

		o := Observe(s.cfg, nil)
		defer o.Close(t.Context())
		o.settings.RuntimeParams[lockTimeout] = "50"
		exec("BEGIN")
		exec("LOCK TABLE part IN ACCESS EXCLUSIVE MODE")
		_, err := o.Inspect(t.Context())
		wantLock(t, version, "Observer", err, "it waited 50ms for a lock on table public.part;", process)
		for name, tables := range map[string]string{"everything": "ALL TABLES", "schema": "TABLES IN SCHEMA public"} {
			if version < 16 {
				continue // TABLES IN SCHEMA is new in 15
			}
			s.Exec(t, "CREATE PUBLICATION "+name+" FOR "+tables)
			wide := s.cfg
			wide.Publication = name
			o := Observe(wide, nil)
			o.settings.RuntimeParams[lockTimeout] = "50"
			_, err := o.Inspect(t.Context())
			o.Close(t.Context())
			wantLock(t, version, tables, err, "a lock on table public.part;", process)
		}
		s.leastPrivileged(t)
		strange := Observe(s.cfg, nil)
		defer strange.Close(t.Context())
		strange.settings.RuntimeParams[lockTimeout] = "50"
		_, err = strange.Inspect(t.Context())
		wantLock(t, version, "Observer without rights", err, "a lock on table public.part;", fmt.Sprintf("process %d: user \"postgres\"", locker.PgConn().PID()))
		exec("ROLLBACK")
		if _, err := o.Inspect(t.Context()); err != nil {
			t.Errorf("after the end of the transaction: %v", err)
		}
	})
}

// A statement that waits for a table blocks those behind it, although it does not hold the lock.
func TestTableIsAboutToBeLocked(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		reader, changer := s.Conn(t), s.Conn(t)
		if _, err := reader.Exec(t.Context(), "BEGIN; SELECT FROM outbox"); err != nil {
			t.Fatal(err)
		}
		changed := make(chan error, 1)
		go func() {
			_, err := changer.Exec(t.Context(), "ALTER TABLE outbox ADD extra text")
			changed <- err
		}()
		wait.For(t, "ALTER TABLE waits", func() bool {
			return pgtest.QueryRow[bool](t, s.DB, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL AND pid = $1)", int32(changer.PgConn().PID()))
		})
		o := Observe(s.cfg, nil)
		defer o.Close(t.Context())
		o.settings.RuntimeParams[lockTimeout] = "50"
		_, err := o.Inspect(t.Context())
		wantLock(t, srv.Install().Major, "Observer", err, "a lock on table public.outbox;", ", active, ALTER TABLE, ",
			fmt.Sprintf("itself waiting for the lock: see SELECT pg_blocking_pids(%d)", changer.PgConn().PID()))
		if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
			t.Error(err)
		}
		if err := <-changed; err != nil {
			t.Error(err)
		}
	})
}

// The creation of the slot of a refill waits without a limit, and names the transactions that it waits for. Other refills and
// setups of the slot wait for it.
func TestRefillWaitsForTransactions(t *testing.T) {
	t.Parallel()
	pgtest.NewestTwo(t, func(t *testing.T, shared *pgserver.Server) {
		db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})) // other tests have transactions, too
		db.Exec(t, `CREATE TABLE outbox (position bigint NOT NULL GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id())`)
		db.Exec(t, `CREATE PUBLICATION pub FOR TABLE outbox`)
		cfg := replication.Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name}
		begin := func(application string) (process string, commit func()) {
			t.Helper()
			conn := db.Conn(t)
			if _, err := conn.Exec(t.Context(), "BEGIN; INSERT INTO outbox DEFAULT VALUES; SET application_name = "+application); err != nil {
				t.Fatal(err)
			}
			process = fmt.Sprintf("process %d: user \"postgres\", database %q, application %q, idle in transaction, BEGIN", conn.PgConn().PID(), db.Name, application)
			return process, func() {
				t.Helper()
				if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
					t.Fatal(err)
				}
			}
		}
		missing := Missing{Delivered: pgtest.QueryRow[string](t, db, `SELECT pg_current_snapshot()::text`)}
		setup := SetupConfig{Conn: cfg.Conn, Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, lockTimeout: 100 * time.Millisecond}
		lock, err := LockSlot(t.Context(), setup)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close(t.Context())

		process, commit := begin("first")
		waits, ended := make(chan error), make(chan error, 1)
		waiting := func(err error) {
			select {
			case waits <- err:
			case <-t.Context().Done():
			}
		}
		go func() {
			c, err := lock.RecreateSlot(t.Context(), cfg, nil, missing, waiting)
			if err == nil {
				c.Close(t.Context())
			}
			close(waits)
			ended <- err
		}()
		awaitText := func(text string) {
			t.Helper()
			for err := range waits {
				if _, ok := errors.AsType[*LockError](err); !ok || !errors.Is(err, replication.ErrBusy) || !strings.Contains(err.Error(), "s for the end of older transactions") {
					t.Errorf("it waits: %v", err)
				}
				if strings.Contains(err.Error(), text) {
					return
				}
			}
			t.Errorf("it ends without waiting for %s: %v", text, <-ended)
		}
		awaitText(process)
		if other, err := LockSlot(t.Context(), setup); !as[*advisory.HeldError](err) {
			t.Errorf("another refill: %v, %v", other, err)
		}
		process, commitSecond := begin("second") // the creation waits for it when the first one has ended
		commit()
		awaitText(process)
		commitSecond()
		for range waits {
		}
		if err := <-ended; err != nil {
			t.Errorf("after the end of the transactions: %v", err)
		}
	})
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
