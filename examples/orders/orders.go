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

// An order is the JSON of responses and events.
type order struct {
	ID       uuid.UUID `json:"id"`
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents"`
	Status   string    `json:"status"`
}

// The states of an order. The first is placed; the others are final.
const (
	placed   = "placed"
	paid     = "paid"
	canceled = "canceled"
)

// events has the event type of each new state. The payload of each event is the order.
var events = map[string]string{placed: "OrderPlaced", paid: "OrderPaid", canceled: "OrderCanceled"} //nolint:gochecknoglobals // a constant

// Errors for clients.
var (
	errNoOrder  = errors.New("the order does not exist")
	errOtherKey = errors.New("another order was placed with this Idempotency-Key")
	errEnded    = errors.New("the order is in another state")
)

// An orders is the table of orders and their events.
type orders struct{ pool *pgxpool.Pool }

// createTable creates the table of the service.
func (o *orders) createTable(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// Two instances that start at the same time could both find no table.
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

// place places an order. If the key has been used, it returns the order of that request, with fresh false,
// and writes no event.
func (o *orders) place(ctx context.Context, key, customer string, cents int64) (placedOrder order, fresh bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return order{}, false, err
	}
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// If another transaction uses the same key, this waits until it ends.
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

// end moves a placed order to a final state. If the order is in this state already, end changes nothing
// and writes no event.
func (o *orders) end(ctx context.Context, id uuid.UUID, status string) (ended order, err error) {
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// The update locks the row, so the events of an order are in the order of its changes.
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

// writeEvent writes the event of an order's new state.
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
