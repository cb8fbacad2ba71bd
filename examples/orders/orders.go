package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// An order, as clients see it.
type order struct {
	ID       uuid.UUID `json:"id"`
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents"`
	Status   string    `json:"status"`
}

// The states of an order. It begins as placed and ends as one of the others.
const (
	placed   = "placed"
	paid     = "paid"
	canceled = "canceled"
)

// events are the types of the events, by the state that an order is in after them. The payload of
// each is the order.
var events = map[string]string{placed: "OrderPlaced", paid: "OrderPaid", canceled: "OrderCanceled"} //nolint:gochecknoglobals // a constant

// What clients are told.
var (
	errNoOrder  = errors.New("there is no such order")
	errOtherKey = errors.New("another order was placed with this Idempotency-Key")
	errEnded    = errors.New("the order is in another state")
)

// orders is the table of orders with the events about them.
type orders struct{ pool *pgxpool.Pool }

// createTable makes what the service needs for itself.
func (o *orders) createTable(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// Instances that start together would both see that there is none.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('orders'))`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			CREATE TABLE IF NOT EXISTS orders (
				id         uuid PRIMARY KEY,
				client_key text NOT NULL UNIQUE,
				customer   text NOT NULL,
				cents      bigint NOT NULL,
				status     text NOT NULL
			)`)
		return err
	})
	if err != nil {
		return fmt.Errorf("create table orders: %w", err)
	}
	return nil
}

// get returns an order, or errNoOrder.
func (o *orders) get(ctx context.Context, id uuid.UUID) (order, error) {
	return one(ctx, o.pool, `SELECT id, customer, cents, status FROM orders WHERE id = $1`, id)
}

// place places an order. A client's key is good for one: to repeat it returns the same order, with
// fresh false and no second event.
func (o *orders) place(ctx context.Context, key, customer string, cents int64) (placedOrder order, fresh bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return order{}, false, err
	}
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// Where the key is somebody else's, this waits until that one's transaction has ended.
		placedOrder, err = one(ctx, tx, `
			INSERT INTO orders (id, client_key, customer, cents, status) VALUES ($1, $2, $3, $4, 'placed')
			ON CONFLICT (client_key) DO NOTHING
			RETURNING id, customer, cents, status`, id, key, customer, cents)
		if errors.Is(err, errNoOrder) {
			placedOrder, err = one(ctx, tx, `SELECT id, customer, cents, status FROM orders WHERE client_key = $1`, key)
			if err == nil && (placedOrder.Customer != customer || placedOrder.Cents != cents) {
				err = errOtherKey
			}
			return err
		}
		if err != nil {
			return err
		}
		fresh = true
		return writeEvent(ctx, tx, placedOrder)
	})
	return placedOrder, fresh, err
}

// end brings a placed order to its last state. To repeat it changes nothing, and there is no second
// event.
func (o *orders) end(ctx context.Context, id uuid.UUID, status string) (ended order, err error) {
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// The update locks the row, so the events of an order are in the order of its states.
		ended, err = one(ctx, tx, `
			UPDATE orders SET status = $2 WHERE id = $1 AND status = 'placed'
			RETURNING id, customer, cents, status`, id, status)
		if !errors.Is(err, errNoOrder) {
			if err != nil {
				return err
			}
			return writeEvent(ctx, tx, ended)
		}
		ended, err = one(ctx, tx, `SELECT id, customer, cents, status FROM orders WHERE id = $1`, id)
		if err == nil && ended.Status != status {
			err = errEnded
		}
		return err
	})
	return ended, err
}

// writeEvent writes the event of an order that has come into its state.
func writeEvent(ctx context.Context, tx pgx.Tx, now order) error {
	return outbox.Write(ctx, tx, outbox.Event{
		AggregateType: "order",
		AggregateID:   now.ID.String(),
		Type:          events[now.Status],
		Payload:       now,
	})
}

// one returns the order that a statement returns, or errNoOrder.
func one(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, statement string, args ...any,
) (order, error) {
	rows, err := db.Query(ctx, statement, args...)
	if err != nil {
		return order{}, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[order])
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return found, err
}
