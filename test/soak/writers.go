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

// Writers write events until they are told to stop, whatever happens to the
// server. All of them draw from the same aggregates.
type Writers struct {
	DSN        string // of the database, not through any proxy
	Run        string // name of this run, in every event
	Seed       uint64 // of everything random
	Writers    int    // connections
	Aggregates int    // as given to CreateSchema
	MaxPayload int    // bytes; one payload in thousands is up to 32 times as large
	Twins      int    // of 100 transactions, those that are two whose commits touch in the log
	Journal    *Journal
	// Route returns an aggregate's aggregatetype. Nil: all have the same.
	Route func(aggregate string) string

	pace atomic.Int64 // mean pause of a writer between two transactions
}

// SetPace says how long a writer pauses between two transactions, in the mean.
// It may be called while they run.
func (w *Writers) SetPace(d time.Duration) { w.pace.Store(int64(d)) }

// Work writes until ctx is done; the last transactions then still come to an
// end. A lost connection is made again. The error is one that no fault of the
// server explains.
//
// A transaction whose COMMIT was not answered stays in doubt until Settle.
func (w *Writers) Work(ctx context.Context) error {
	var g errgroup.Group
	for i := range w.Writers {
		g.Go(func() error {
			one := &writer{Writers: w, rng: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
			hard := context.WithoutCancel(ctx) // a transaction is not left in the middle
			defer one.close(hard)
			return errors.Join(one.work(ctx, hard), one.leave(hard))
		})
	}
	return g.Wait()
}

// Settle asks the database how the transactions ended of which nobody else
// knows. To be called when no writer runs and the server does.
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

// rollbackPrepared ends a transaction that was left prepared.
func rollbackPrepared(ctx context.Context, conn *pgx.Conn, tx uuid.UUID) error {
	_, err := conn.Exec(ctx, `ROLLBACK PREPARED '`+tx.String()+`'`)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42704" { // there is none
		return nil
	}
	return err
}

// A writer is one connection.
type writer struct {
	*Writers
	rng  *rand.Rand
	conn *pgx.Conn // nil: none

	// open are transactions that may have been left prepared: their rows are
	// locked until they are ended.
	open []uuid.UUID
}

// patience is how long the server may be away.
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

// leave ends what was left prepared: it would lock its rows for ever.
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

// fromFault reports whether a server that is stopped or killed, or a deadlock,
// explains err.
func fromFault(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // the connection, or the way to one
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

// connect makes a connection if there is none, and ends what the last one left
// prepared.
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
