package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

const shopSchema = `
CREATE TABLE customers (
	id      integer PRIMARY KEY,
	version integer NOT NULL DEFAULT 0,
	spent   bigint  NOT NULL DEFAULT 0
);
INSERT INTO customers (id) SELECT generate_series(1, 100);
CREATE TABLE orders (
	id       bigint  PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	version  integer NOT NULL DEFAULT 1,
	status   text    NOT NULL DEFAULT 'Placed',
	customer integer NOT NULL REFERENCES customers,
	cents    integer NOT NULL
)`

const (
	shopWorkers    = 8
	openOrders     = 50               // number of orders in progress
	declineEvery   = 20               // one of so many transactions is rolled back
	savepointEvery = 25               // one of so many has a savepoint that is rolled back
	shopTimeout    = 10 * time.Second // for one transaction when the demo stops
)

// statuses returns the statuses of an order, one per transaction. The index is the order's version.
func statuses() []string { return []string{"", "Placed", "Paid", "Packed", "Shipped", "Delivered"} }

// A shop is the order service. Every change of an order is a transaction that updates the order and writes an event. A
// payment also updates the customer and writes a second event.
type shop struct {
	pool   *pgxpool.Pool // with the demo's schema first in the search_path
	ledger *ledger
	topic  func(aggregateType string) string
	rate   int // transactions per second

	mu   sync.Mutex
	open []int64 // orders that are not delivered yet
}

// run changes orders until ctx ends, and then completes the transactions in progress.
func (s *shop) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	turns := make(chan int, shopWorkers)
	g.Go(func() error { // when it returns, the workers return too
		defer close(turns)
		s.pace(ctx, turns)
		return nil
	})
	for range shopWorkers {
		g.Go(func() error {
			for n := range turns {
				if err := s.transact(ctx, n); err != nil {
					return fmt.Errorf("order service: %w", err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// pace sends rate turns per second, evenly. It drops turns if the database is too slow, so the rate is that of actual
// transactions.
func (s *shop) pace(ctx context.Context, turns chan<- int) {
	interval := time.Second / time.Duration(s.rate)
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		select {
		case turns <- n:
		default:
		}
		next = next.Add(interval)
		if now := time.Now(); now.Sub(next) > time.Second/10 {
			next = now
		}
		timer.Reset(time.Until(next))
	}
}

// transact makes the n-th change of an order. It completes even if ctx ends, so that the outcome is known.
func (s *shop) transact(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shopTimeout)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after Commit

	c, err := s.change(ctx, tx, n)
	if err != nil || c == nil {
		return err
	}
	events, rows, err := s.describe(c)
	if err != nil {
		return err
	}
	if err := outbox.Write(ctx, tx, events...); err != nil {
		return err
	}
	if n%savepointEvery == 0 {
		if err := s.coupon(ctx, tx, c); err != nil {
			return err
		}
	}
	if n%declineEvery == 0 { // for instance, the payment was declined
		s.ledger.enter(delivery.RolledBack, rows...)
		return tx.Rollback(ctx)
	}
	s.ledger.enter(delivery.Committed, rows...)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.ledger.committed(len(rows))
	s.keep(c)
	return nil
}

// A change is a change of an order, and of its customer if it was paid.
type change struct {
	order           int64
	version         int
	customer, cents int
	customerVersion int // 0: not changed
	spent           int
}

// change places an order, or sets the next status of one. The row stays locked until tx ends, so versions are committed
// in order. change returns nil if another worker has already delivered the order.
func (s *shop) change(ctx context.Context, tx pgx.Tx, n int) (*change, error) {
	var c change
	order, ok := s.pick()
	if !ok {
		c = change{version: 1, customer: n%100 + 1, cents: 100 + 25*rand.IntN(400)}
		err := tx.QueryRow(ctx, `INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id`,
			c.customer, c.cents).Scan(&c.order)
		return &c, err
	}
	c.order = order
	err := tx.QueryRow(ctx, `
		UPDATE orders SET version = version + 1, status = ($2::text[])[version + 2]
		WHERE id = $1 AND version < cardinality($2::text[]) - 1
		RETURNING version, customer, cents`, order, statuses()).Scan(&c.version, &c.customer, &c.cents)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // another worker was faster: there is no change
	case err != nil:
		return nil, err
	case statuses()[c.version] == "Paid":
		err = tx.QueryRow(ctx, `UPDATE customers SET version = version + 1, spent = spent + $2 WHERE id = $1 RETURNING version, spent`,
			c.customer, c.cents).Scan(&c.customerVersion, &c.spent)
	}
	return &c, err
}

// describe returns the events of c, and the records that they must become.
func (s *shop) describe(c *change) ([]outbox.Event, []row, error) {
	status := statuses()[c.version]
	payload, err := json.Marshal(map[string]any{
		"order": orderKey(c.order), "version": c.version, "status": status, "cents": c.cents,
	})
	if err != nil {
		return nil, nil, err
	}
	events := []outbox.Event{{
		AggregateType: "order", AggregateID: orderKey(c.order), Type: "Order" + status, Payload: payload,
	}}
	versions := []int{c.version}
	if c.customerVersion > 0 {
		payload, err := json.Marshal(map[string]any{"version": c.customerVersion, "cents": c.cents, "spent": c.spent})
		if err != nil {
			return nil, nil, err
		}
		events = append(events, outbox.Event{
			AggregateType: "customer", AggregateID: "customer-" + strconv.Itoa(c.customer), Type: "CustomerCharged", Payload: payload,
		})
		versions = append(versions, c.customerVersion)
	}
	rows, err := s.rows(events, versions)
	if err != nil {
		return nil, nil, err
	}
	rows[0].final = c.version == len(statuses())-1
	return events, rows, nil
}

// rows returns the rows of events, with new ids.
func (s *shop) rows(events []outbox.Event, versions []int) ([]row, error) {
	rows := make([]row, len(events))
	for i := range events {
		e := &events[i]
		var err error
		if e.ID, err = uuid.NewV7(); err != nil {
			return nil, err
		}
		rows[i] = row{id: e.ID, topic: s.topic(e.AggregateType), key: e.AggregateID, kind: e.Type, version: versions[i]}
	}
	return rows, nil
}

// coupon writes an event after a savepoint and rolls back to it, which undoes only that event.
func (s *shop) coupon(ctx context.Context, tx pgx.Tx, c *change) error {
	events := []outbox.Event{{
		AggregateType: "order", AggregateID: orderKey(c.order), Type: "CouponApplied", Payload: []byte(`{"coupon": "EXPIRED"}`),
	}}
	rows, err := s.rows(events, []int{c.version})
	if err != nil {
		return err
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err := outbox.Write(ctx, savepoint, events...); err != nil {
		return err
	}
	s.ledger.enter(delivery.RolledBack, rows...)
	return savepoint.Rollback(ctx)
}

func orderKey(id int64) string { return "order-" + strconv.FormatInt(id, 10) }

// pick returns an order to change, or false to place a new one.
func (s *shop) pick() (order int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) < openOrders {
		return 0, false
	}
	return s.open[rand.IntN(len(s.open))], true
}

// keep makes the order of a committed change available to pick, unless it is delivered.
func (s *shop) keep(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.version {
	case 1:
		s.open = append(s.open, c.order)
	case len(statuses()) - 1:
		for i, order := range s.open {
			if order == c.order {
				last := len(s.open) - 1
				s.open[i] = s.open[last]
				s.open = s.open[:last]
				break
			}
		}
	}
}
