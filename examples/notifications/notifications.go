package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// consumer is the service's name in the inbox. Do not change it: under another name the service would
// process every event again.
const consumer = "notifications"

// An order is the payload of its events.
type order struct {
	ID       uuid.UUID `json:"id"`
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents"`
}

// createTable creates the table of the service.
func createTable(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Two instances that start at the same time could both find no table.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('notifications'))`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			CREATE TABLE IF NOT EXISTS notifications (
				id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				order_id uuid NOT NULL,
				customer text NOT NULL,
				message  text NOT NULL
			)`)
		return err
	})
	if err != nil {
		return fmt.Errorf("create table notifications: %w", err)
	}
	return nil
}

// handlers has the handler of each event type.
func handlers() map[string]inbox.Handler {
	return map[string]inbox.Handler{
		"OrderPlaced":   inbox.JSON(welcome),
		"OrderPaid":     inbox.JSON(thank),
		"OrderCanceled": inbox.JSON(regret),
	}
}

func welcome(ctx context.Context, tx pgx.Tx, _ inbox.Event, o order) error {
	return notify(ctx, tx, o, fmt.Sprintf("Your order over %d.%02d has arrived.", o.Cents/100, o.Cents%100))
}

func thank(ctx context.Context, tx pgx.Tx, _ inbox.Event, o order) error {
	return notify(ctx, tx, o, "Thank you for paying.")
}

func regret(ctx context.Context, tx pgx.Tx, _ inbox.Event, o order) error {
	return notify(ctx, tx, o, "Your order was canceled.")
}

// notify writes a notification in tx, so that it exists once. Another process would read the table and
// send it.
func notify(ctx context.Context, tx pgx.Tx, o order, message string) error {
	_, err := tx.Exec(ctx, `INSERT INTO notifications (order_id, customer, message) VALUES ($1, $2, $3)`, o.ID, o.Customer, message)
	return err
}
