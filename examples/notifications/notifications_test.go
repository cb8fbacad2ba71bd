package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// childVariable is set in the process that the test kills in the middle of a handler.
const childVariable = "NOTIFICATIONS_TEST_CHILD"

func TestMain(m *testing.M) {
	if at := os.Getenv(childVariable); at != "" {
		child(strings.Split(at, " "))
	}
	pgtest.Main(awstest.Wrap(rabbittest.Wrap(kafkatest.Wrap(m))))
}

// child is the service with handlers that report that they run, and block.
func child(at []string) {
	processing := inbox.Config{Consumer: consumer, Handlers: handlers()}
	for name, handle := range processing.Handlers {
		processing.Handlers[name] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if err := handle(ctx, tx, e); err != nil {
				return err
			}
			fmt.Println("in the middle")
			select {}
		}
	}
	err := serve(context.Background(), config{dsn: at[0], brokers: at[1], topic: at[2], group: at[3], metrics: "127.0.0.1:0"}, processing)
	fmt.Println("ended:", err)
	os.Exit(1)
}

// A shop has the servers of a test.
type shop struct {
	cluster *kafkatest.Cluster
	db      *pgtest.DB
	cfg     config
	client  *kgo.Client
}

// eachKafka runs f with kfake and, in a full run, with a real broker.
func eachKafka(t *testing.T, f func(t *testing.T, s *shop)) {
	t.Helper()
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		s := &shop{cluster: cluster, db: pgtest.Database(t)}
		command(t, "migrate", "up", "--only", "inbox", "--dsn", s.db.DSN)
		s.cfg = config{
			dsn: s.db.DSN, brokers: strings.Join(cluster.Addrs, ","), topic: cluster.Topic(t, 2, nil),
			group: kafkatest.UniqueName(t), metrics: "127.0.0.1:0",
		}
		s.client = cluster.Client(t)
		f(t, s)
	})
}

// command runs outbox-cdc.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if code := cli.Main(t.Context(), args, nil, &out, &out); code != 0 {
		t.Fatalf("outbox-cdc %s: exit code %d\n%s", strings.Join(args, " "), code, out.String())
	}
	return out.String()
}

// event returns the record that the relay makes of an event.
func (s *shop) event(id, order uuid.UUID, kind, customer string) *kgo.Record {
	return &kgo.Record{
		Topic: s.cfg.topic, Key: []byte(order.String()),
		Value:   fmt.Appendf(nil, `{"id": %q, "customer": %q, "cents": 4200}`, order, customer),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id.String())}, {Key: "eventType", Value: []byte(kind)}},
	}
}

// produce sends events of an order to Kafka.
func (s *shop) produce(t *testing.T, order uuid.UUID, customer string, kinds ...string) {
	t.Helper()
	for _, kind := range kinds {
		if err := s.client.ProduceSync(t.Context(), s.event(uuid.Must(uuid.NewV7()), order, kind, customer)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs the service, with short retry delays, until stop is called or the test ends. It returns when
// the table of the service exists.
func (s *shop) start(t *testing.T, change func(*config, *inbox.Config)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cfg, processing := s.cfg, inbox.Config{
		Consumer: consumer, Handlers: handlers(), PollInterval: 20 * time.Millisecond,
		RetryDelays: []time.Duration{10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
	}
	if change != nil {
		change(&cfg, &processing)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(ctx, cfg, processing); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	s.await(t, "the table", `SELECT to_regclass('notifications') IS NOT NULL`)
	return stop
}

// messages returns the notifications of an order.
func (s *shop) messages(t *testing.T, order uuid.UUID) []string {
	t.Helper()
	return pgtest.QueryRow[[]string](t, s.db, `SELECT coalesce(array_agg(message ORDER BY id), '{}') FROM notifications WHERE order_id = $1`, order)
}

func (s *shop) await(t *testing.T, what, query string) {
	t.Helper()
	wait.For(t, what, func() bool { return pgtest.QueryRow[bool](t, s.db, query) })
}

const (
	placed = "Your order over 42.00 has arrived."
	paid   = "Thank you for paying."
)

func (s *shop) check(t *testing.T, order uuid.UUID, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.messages(t, order)); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

// The service is killed in the middle of a handler, with its effects in the open transaction.
func TestKilledInsideAHandler(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, s *shop) {
		order := uuid.New()
		s.produce(t, order, "ann", "OrderPlaced", "OrderPaid")
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+strings.Join([]string{s.cfg.dsn, s.cfg.brokers, s.cfg.topic, s.cfg.group}, " "))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "in the middle\n" {
			t.Fatalf("the child printed %q, %v", line, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		s.check(t, order, []string{}...)
		s.cfg.group += "-2" // not to wait until the dead member's session is over
		s.start(t, nil)
		s.await(t, "two notifications", `SELECT count(*) >= 2 FROM notifications`)
		s.check(t, order, placed, paid)
	})
}

// The same record is delivered three times, and to two consumers at the same time.
func TestDeliveredAgain(t *testing.T) {
	need.FullRun(t, "it delivers for seconds")
	t.Parallel()
	eachKafka(t, func(t *testing.T, s *shop) {
		order := uuid.New()
		r := s.event(uuid.Must(uuid.NewV7()), order, "OrderPlaced", "ann")
		for range 3 {
			if err := s.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		s.produce(t, order, "ann", "OrderPaid")
		s.start(t, nil)
		s.start(t, func(cfg *config, _ *inbox.Config) { cfg.group += "-twin" })
		admin := s.cluster.Admin(t)
		committed := func(group string) int64 {
			offsets, err := admin.FetchOffsets(t.Context(), group)
			if err != nil { // the group is not there yet
				return 0
			}
			var sum int64
			for _, o := range offsets.Offsets().Sorted() {
				sum += max(0, o.At)
			}
			return sum
		}
		wait.For(t, "the offsets to be committed", func() bool { return committed(s.cfg.group) >= 4 && committed(s.cfg.group+"-twin") >= 4 })
		s.check(t, order, placed, paid)
	})
}

// One handler fails twice and then works. Another one fails until it is fixed and the event is retried.
func TestFailures(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, s *shop) {
		conn := s.db.Conn(t)
		if err := createTable(t.Context(), s.db.Pool(t)); err != nil {
			t.Fatal(err)
		}
		// A sequence also counts rolled back transactions.
		_, err := conn.Exec(t.Context(), `
			ALTER TABLE notifications ADD CONSTRAINT reachable CHECK (customer <> 'never');
			CREATE SEQUENCE tries;
			CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('tries') <= 2 THEN RAISE 'not now'; END IF;
				RETURN NEW;
			END $$;
			CREATE TRIGGER fail BEFORE INSERT ON notifications FOR EACH ROW WHEN (NEW.customer = 'twice') EXECUTE FUNCTION fail()`)
		if err != nil {
			t.Fatal(err)
		}
		twice, never, other := uuid.New(), uuid.New(), uuid.New()
		s.start(t, nil)
		s.produce(t, twice, "twice", "OrderPlaced", "OrderPaid")
		s.produce(t, never, "never", "OrderPlaced", "OrderPaid")
		s.produce(t, other, "ann", "OrderPlaced", "OrderPaid")
		s.await(t, "the others' notifications", `SELECT count(*) = 4 FROM notifications`)
		s.check(t, twice, placed, paid)
		s.check(t, other, placed, paid)
		s.await(t, "one is parked, one behind it", `SELECT count(*) = 2 AND count(parked_at) = 1 FROM inbox_events WHERE due_at IS NULL`)
		s.check(t, never, []string{}...)

		if out := command(t, "inbox", "list", "--dsn", s.db.DSN, "--parked"); strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, "parked  failed attempts: 4") || !strings.Contains(out, `violates check constraint "reachable"`) {
			t.Errorf("outbox-cdc inbox list:\n%s", out)
		}
		if _, err := conn.Exec(t.Context(), `ALTER TABLE notifications DROP CONSTRAINT reachable`); err != nil {
			t.Fatal(err)
		}
		command(t, "inbox", "retry", "--dsn", s.db.DSN, "--consumer", consumer, "--all")
		s.await(t, "nothing waits", `SELECT NOT EXISTS (SELECT FROM inbox_events)`)
		s.check(t, never, placed, paid)
	})
}

// Members come and go while handlers run.
func TestRebalanceInTheMiddle(t *testing.T) {
	need.FullRun(t, "it delivers for seconds")
	t.Parallel()
	eachKafka(t, func(t *testing.T, s *shop) {
		slow := func(_ *config, c *inbox.Config) {
			for name, handle := range c.Handlers {
				c.Handlers[name] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
					if err := handle(ctx, tx, e); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, `SELECT pg_sleep(0.02)`)
					return err
				}
			}
		}
		orders := make([]uuid.UUID, 40)
		for i := range orders {
			orders[i] = uuid.New()
			s.produce(t, orders[i], "ann", "OrderPlaced", "OrderPaid")
		}
		stop := s.start(t, slow)
		s.await(t, "the first member is at it", `SELECT count(*) > 3 FROM notifications`)
		s.start(t, slow)
		s.await(t, "half of it", `SELECT count(*) > 40 FROM notifications`)
		stop()
		s.await(t, "all notifications", `SELECT count(*) >= 80 FROM notifications`)
		for _, order := range orders {
			s.check(t, order, placed, paid)
		}
	})
}
