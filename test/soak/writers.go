package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// Writers write events until they are stopped, even if the server restarts. All
// writers use the same aggregates.
type Writers struct {
	DSN         string // of the database, without a proxy
	Run         string // name of this run, in every event
	Seed        uint64 // of all random choices
	Writers     int    // number of connections
	Aggregates  int    // at most the number given to CreateSchema
	MaxPayload  int    // bytes; one payload in thousands is up to 32 times as large
	MaxSequence int    // maximum number of rows of an aggregate in a transaction; 0: 5000
	Twins       int    // percentage of pairs of transactions whose commits are adjacent in the WAL
	Keep        bool   // leave all rows in the table: a deleted row cannot be refilled
	Journal     *Journal
	// Route returns the aggregatetype of an aggregate. If it is nil, all aggregates have the same.
	Route func(aggregate string) string
	// Poison returns the number of bytes of a payload that the broker must reject, 0 for that of an ordinary event.
	// It is called from several goroutines with the choices of a writer. If it is nil, every event is an ordinary one.
	Poison func(Event, *rand.Rand) int

	pace atomic.Int64 // mean pause of a writer between two transactions
}

// SetPace sets the mean pause of a writer between two transactions. It may be
// called while the writers run.
func (w *Writers) SetPace(d time.Duration) { w.pace.Store(int64(d)) }

// Work writes until ctx is done and the last transactions have ended. It reconnects
// after a lost connection. It returns an error only if no restart or crash of the
// server explains it, or if the server is unavailable for too long.
//
// If the response to a COMMIT was lost, the transaction stays in doubt until Settle.
func (w *Writers) Work(ctx context.Context) error {
	var g errgroup.Group
	for i := range w.Writers {
		g.Go(func() error {
			one := &writer{Writers: w, rng: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
			hard := context.WithoutCancel(ctx) // ctx does not interrupt a transaction
			defer one.close(hard)
			return errors.Join(one.work(ctx, hard), one.leave(hard))
		})
	}
	return g.Wait()
}

// Settle reads the outcome of all unresolved transactions from the database. Call
// it when no writer runs and the server does.
func (w *Writers) Settle(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	unresolved := w.Journal.Unresolved()
	for _, tx := range unresolved {
		if err := rollbackPrepared(ctx, conn, tx); err != nil {
			return err
		}
		var done bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM oracle.done WHERE tx = $1)`, tx).Scan(&done); err != nil {
			return fmt.Errorf("ask how transaction %s ended: %w", tx, err)
		}
		if done {
			w.Journal.Resolve(tx, delivery.Committed)
		} else {
			w.Journal.Resolve(tx, delivery.RolledBack)
		}
	}
	return nil
}

// rollbackPrepared rolls back a prepared transaction. It is no error if there is none.
func rollbackPrepared(ctx context.Context, conn *pgx.Conn, tx uuid.UUID) error {
	_, err := conn.Exec(ctx, `ROLLBACK PREPARED '`+tx.String()+`'`)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42704" { // undefined_object
		return nil
	}
	return err
}

// A writer is one connection.
type writer struct {
	*Writers
	rng  *rand.Rand
	conn *pgx.Conn // nil: none

	// open are transactions that may still be prepared. They lock their rows until
	// they end.
	open []uuid.UUID
}

// patience is the time for which the server may be unavailable.
const patience = time.Minute

func (w *writer) work(ctx, hard context.Context) error {
	failing := time.Time{}
	for ctx.Err() == nil {
		err := w.connect(hard)
		if err == nil {
			err = w.transaction(hard)
		}
		pause := time.Duration(w.pace.Load()) * 2
		switch {
		case err == nil:
			failing = time.Time{}
		case !fromFault(err):
			return fmt.Errorf("write events: %w", err)
		default:
			if failing.IsZero() {
				failing = time.Now()
			} else if time.Since(failing) > patience {
				return fmt.Errorf("write events: %w", err)
			}
			w.close(hard)
			pause = 20 * time.Millisecond
		}
		if pause > 0 {
			select {
			case <-time.After(time.Duration(w.rng.Int64N(int64(pause)))):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// leave rolls back the transactions that are still prepared, because they would lock
// their rows forever.
func (w *writer) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(w.open) > 0 {
		err := w.connect(ctx)
		if err == nil {
			break
		}
		w.close(ctx)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("end a prepared transaction: %w", err)
		}
	}
	return nil
}

// fromFault reports whether err can result from a server that was stopped or killed,
// or from a deadlock.
func fromFault(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // an error of the connection, or of the attempt to connect
	}
	switch e.Code[:2] {
	case "57", "08", "40", "53": // operator intervention, connection, rollback, resources
		return true
	default:
		return false
	}
}

func (w *writer) close(ctx context.Context) {
	if w.conn != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = w.conn.Close(ctx)
		w.conn = nil
	}
}

// connect opens a connection if there is none, and rolls back the transactions that
// the previous connection left prepared.
func (w *writer) connect(ctx context.Context) error {
	if w.conn == nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, w.DSN)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	for _, tx := range w.open {
		if err := rollbackPrepared(ctx, w.conn, tx); err != nil {
			return err
		}
	}
	w.open = nil
	return nil
}
