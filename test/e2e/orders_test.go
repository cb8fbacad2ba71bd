package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A shop is examples/orders with a relay. Its clients repeat a request until the service responds.
type shop struct {
	db     *pgtest.DB
	kafka  *kafkatest.Cluster
	topic  string
	config string // of the relay

	service *rig.Process
	url     string
}

// openShop starts the service, but not the relay.
func openShop(t *testing.T, srv *pgserver.Server, cluster *kafkatest.Cluster) *shop {
	t.Helper()
	db := pgtest.DatabaseOn(t, srv)
	rig.Migrate(t, db.DSN)
	s := &shop{db: db, kafka: cluster, topic: cluster.Topic(t, 3, nil)}
	s.config = rig.WriteConfig(t, db.DSN, cluster.Addrs[0], rig.SlotPrefix+db.Name, s.topic, "")
	s.open(t)
	return s
}

func (s *shop) open(t *testing.T) {
	t.Helper()
	s.service = rig.StartProgram(t, rig.Build(t, "examples/orders"), "-listen", "127.0.0.1:0", "-dsn", s.db.DSN)
	s.service.Logged(t, "msg=serving")
	s.url = "http://" + regexp.MustCompile(`msg=serving addr=(\S+)`).FindStringSubmatch(s.service.Stderr.String())[1] + "/orders"
}

// relay starts the relay and waits until it streams.
func (s *shop) relay(t *testing.T) *rig.Process {
	t.Helper()
	r := rig.Start(t, "run", "-c", s.config)
	r.Logged(t, "streaming")
	return r
}

// send sends a request once. It returns status 0 if the service does not respond.
func (s *shop) send(t *testing.T, path, key string) (status int, order map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(`{"customer": "`+key+`", "cents": 4200}`))
	rig.Must(t, err)
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	if json.NewDecoder(res.Body).Decode(&order) != nil {
		return 0, nil
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, order
}

// place sends the order of a key until the service accepts it. It returns the order's id and whether the
// order was new.
func (s *shop) place(t *testing.T, key string) (id string, fresh bool) {
	t.Helper()
	wait.For(t, "an order to be placed", func() bool {
		status, order := s.send(t, "", key)
		id, _ = order["id"].(string)
		fresh = status == http.StatusCreated
		return fresh || status == http.StatusOK
	})
	return id, fresh
}

// holdAt blocks a transaction of the service until release, either at the INSERT of its event or at
// COMMIT. held waits until a transaction is blocked.
func (s *shop) holdAt(t *testing.T, conn *pgx.Conn, commit bool) (held, release func()) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		rig.Must(t, err)
	}
	when := `CREATE TRIGGER hold BEFORE INSERT ON outbox`
	if commit {
		when = `CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED`
	}
	exec(`CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$`)
	exec(when + ` FOR EACH ROW EXECUTE FUNCTION hold()`)
	exec(`SELECT pg_advisory_lock(1)`)
	held = func() {
		t.Helper()
		wait.For(t, "the service to be held", func() bool {
			return rig.Ask[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
		})
	}
	return held, func() {
		t.Helper()
		exec(`SELECT pg_advisory_unlock(1)`)
		exec(`DROP TRIGGER hold ON outbox`) // waits for the blocked transaction
	}
}

// verify waits until the slot is confirmed. It then checks that the topic has one event for each order in
// the table and none for a transaction that rolled back. The topic may contain duplicates only if repeats
// is true.
func (s *shop) verify(t *testing.T, orders int, repeats bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.db.DSN)
	rig.Must(t, err)
	defer conn.Close(t.Context())
	rig.AwaitConfirmed(t, conn, rig.SlotPrefix+s.db.Name)
	rows, err := conn.Query(t.Context(), `SELECT id::text FROM orders`)
	rig.Must(t, err)
	committed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	rig.Must(t, err)
	if len(committed) != orders {
		t.Errorf("%d orders are in the table, %d were placed", len(committed), orders)
	}
	records := s.kafka.ReadAll(t, s.topic)
	effects, seen := make(map[string]int), make(map[string]bool) // events by order, and known ids
	for _, r := range records {
		id := rig.Header(r, "id")
		if seen[id] && !repeats {
			t.Errorf("event %s came twice", id)
		} else if !seen[id] {
			effects[string(r.Key)]++
		}
		seen[id] = true
	}
	for _, id := range committed {
		if effects[id] != 1 {
			t.Errorf("order %s has %d events, want 1", id, effects[id])
		}
		delete(effects, id)
	}
	for id, n := range effects {
		t.Errorf("order %s is not in the table and has %d events", id, n)
	}
}

// Clients repeat requests and send them out of order. The orders arrive as the records that docs/record.md
// describes, with kfake and with the real broker.
func TestOrders(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		s := openShop(t, pgtest.Server(t), cluster)
		process := s.relay(t)
		const orders = 20
		var wg sync.WaitGroup
		for i := range orders {
			for range 3 {
				wg.Go(func() { s.place(t, fmt.Sprint("customer-", i)) })
			}
		}
		wg.Wait()
		s.verify(t, orders, false)
		id, _ := s.place(t, "customer-0")
		if status, _ := s.send(t, "/"+id+"/pay", ""); status != http.StatusOK {
			t.Errorf("pay: %d", status)
		}
		s.kafka.ReadN(t, orders+1, s.topic)
		var life []string
		for _, r := range s.kafka.ReadAll(t, s.topic) {
			if string(r.Key) == id {
				life = append(life, rig.Header(r, "eventType")+" "+string(r.Value))
			}
		}
		want := fmt.Sprintf(`OrderPlaced {"id": %[1]q, "cents": 4200, "status": "placed", "customer": "customer-0"}
OrderPaid {"id": %[1]q, "cents": 4200, "status": "paid", "customer": "customer-0"}`, id)
		if got := strings.Join(life, "\n"); got != want {
			t.Errorf("records of an order:\n%s\nwant:\n%s", got, want)
		}
		process.Terminate(t)
		s.service.Terminate(t)
	})
}

// The test kills the relay and the consumer between request and notification. Every placed and paid order
// causes each notification exactly once, with kfake and with the real broker.
func TestOrdersAreNotified(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "several services and relays")
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		s := openShop(t, pgtest.Server(t), cluster)
		notify := func() *rig.Process {
			t.Helper()
			return rig.StartProgram(t, rig.Build(t, "examples/notifications"), "-dsn", s.db.DSN, "-brokers", s.kafka.Addrs[0],
				"-topic", s.topic, "-group", s.topic, "-metrics", "127.0.0.1:0")
		}
		process, consumer := s.relay(t), notify()
		conn := s.db.Conn(t)
		wait.For(t, "the consumer's table", func() bool {
			return rig.Ask[bool](t, conn, `SELECT to_regclass('notifications') IS NOT NULL`)
		})
		const orders = 30
		for i := range orders {
			id, _ := s.place(t, fmt.Sprint("customer-", i))
			if status, _ := s.send(t, "/"+id+"/pay", ""); status != http.StatusOK {
				t.Fatalf("pay: %d", status)
			}
			switch i {
			case 10:
				process.Kill(t)
				process = s.relay(t)
			case 20:
				consumer.Kill(t)
				consumer = notify()
			}
		}
		wait.For(t, "the last order's notifications", func() bool {
			return rig.Ask[int](t, conn, `SELECT count(DISTINCT (order_id, message))::int FROM notifications`) >= 2*orders
		})
		process.Terminate(t)
		consumer.Terminate(t)
		if n := rig.Ask[int](t, conn, `SELECT count(*)::int FROM notifications`); n != 2*orders {
			t.Errorf("%d notifications, want %d", n, 2*orders)
		}
		if n := rig.Ask[int](t, conn, `
			SELECT count(*)::int FROM orders o WHERE 2 <> (SELECT count(*) FROM notifications n WHERE n.order_id = o.id AND n.customer = o.customer)
				OR (SELECT max(n.id) FROM notifications n WHERE n.order_id = o.id) <>
					(SELECT n.id FROM notifications n WHERE n.order_id = o.id AND n.message = 'Thank you for paying.')`); n != 0 {
			t.Errorf("%d orders have other notifications, or in another order", n)
		}
	})
}

// Postgres crashes after the INSERT of the order and before the INSERT of its event.
func TestOrdersServerFailsBetweenTheInserts(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "several services and relays")
	srv := pgtest.Start(t, pgserver.Config{})
	s := openShop(t, srv, kafkatest.Broker(t))
	process := s.relay(t)
	// The trigger sleeps instead of waiting for a lock, because such a waiting transaction once committed
	// while the server was being killed.
	s.db.Exec(t, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
		CREATE TRIGGER hold BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION hold()`)
	answered := make(chan int, 1)
	go func() {
		status, _ := s.send(t, "", "ann")
		answered <- status
	}()
	wait.For(t, "the service to be held", func() bool { return pgtest.Sleeps(t, s.db) })
	rig.Must(t, srv.Kill(t.Context()))
	if status := <-answered; status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", status)
	}
	rig.Must(t, srv.Restart(t.Context()))
	s.db.Exec(t, `DROP TRIGGER hold ON outbox`)
	s.verify(t, 0, false)
	if _, fresh := s.place(t, "ann"); !fresh {
		t.Error("the order of the transaction that failed is there")
	}
	s.verify(t, 1, false)
	process.Terminate(t)
}

// The test kills the service within a transaction, or during COMMIT before any client has a response. The
// client repeats its request after the service's next start.
func TestOrdersServiceIsKilled(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "several services and relays")
	for name, commit := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, pgtest.Server(t), kafkatest.Broker(t))
			process := s.relay(t)
			conn := s.db.Conn(t)
			held, release := s.holdAt(t, conn, commit)
			answered := make(chan int, 1)
			go func() {
				status, _ := s.send(t, "", "ann")
				answered <- status
			}()
			held()
			s.service.Kill(t)
			if status := <-answered; status != 0 {
				t.Errorf("status %d of a service that was killed", status)
			}
			release()
			orders := 0
			if commit {
				orders = 1
			}
			s.verify(t, orders, false)
			s.open(t)
			if _, fresh := s.place(t, "ann"); fresh == commit {
				t.Errorf("the order is new: %v", fresh)
			}
			s.verify(t, 1, false)
			process.Terminate(t)
		})
	}
}

// While the broker is down, the service still accepts orders. The relay delivers their events when the
// broker is back.
func TestOrdersBrokerIsDown(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, kafkatest.Config{})
	s := openShop(t, pgtest.Server(t), cluster.Cluster)
	process := s.relay(t)
	s.place(t, "before")
	s.verify(t, 1, false)
	rig.Must(t, cluster.Shutdown(t.Context()))
	for i := range 10 {
		if status, _ := s.send(t, "", fmt.Sprint("during-", i)); status != http.StatusCreated {
			t.Errorf("status %d without a broker", status)
		}
	}
	rig.Must(t, cluster.Restart(t.Context()))
	s.verify(t, 11, false)
	process.Terminate(t)
}

// The test repeatedly kills the relay while clients place orders. Duplicates are allowed and have the same
// ids.
func TestOrdersRelayIsKilled(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "several services and relays")
	s := openShop(t, pgtest.Server(t), kafkatest.Broker(t))
	process := s.relay(t)
	orders := 0
	for range rig.Cycles(t) {
		var wg sync.WaitGroup
		for range 50 {
			orders++
			key := fmt.Sprint("customer-", orders)
			wg.Go(func() { s.place(t, key) })
		}
		process.Kill(t)
		wg.Wait()
		process = s.relay(t)
	}
	s.verify(t, orders, true)
	process.Terminate(t)
}
