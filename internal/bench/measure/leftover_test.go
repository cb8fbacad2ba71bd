package measure_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// objectsSQL counts the objects that a benchmark creates in the test's database.
const objectsSQL = `
SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())
	+ (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox\_cdc\_%')`

func shell(script string) *exec.Cmd {
	return exec.Command("/bin/sh", "-c", script) //nolint:noctx // Stop ends it
}

func admin(t *testing.T, on servers) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(on.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// nothingIsLeft checks that nothing remains on either server.
func nothingIsLeft(t *testing.T, on servers, db *pgtest.DB) {
	t.Helper()
	noObjects(t, db)
	topics, err := admin(t, on).ListTopics(t.Context())
	if err != nil || len(topics) > 0 {
		t.Errorf("topics that are left: %v, %v", topics.Names(), err)
	}
}

// noObjects waits a little, since a temporary slot is dropped only when its session has ended.
func noObjects(t *testing.T, db *pgtest.DB) {
	t.Helper()
	var n int
	wait.For(t, "no slots, publications and schemas to be left", func() bool {
		n = pgtest.QueryRow[int](t, db, objectsSQL)
		return n == 0
	}, func() any { return fmt.Sprintf("%d are left", n) })
}

func TestCloseDropsEverything(t *testing.T) {
	on, db := place(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	w := newBench(t, on.Servers, measure.Config{Topics: 3})
	b := write(t, w, measure.Load{Rows: 10, PayloadBytes: 200, PerTransaction: 1, Keys: 1})
	drain(t, b, relay(t, on)) // this also creates a topic
	if n := pgtest.QueryRow[int](t, db, objectsSQL); n != 3 {
		t.Errorf("%d slots, publications and schemas, want one of each", n)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	nothingIsLeft(t, on, db)
	files, err := os.ReadDir(temporary)
	if err != nil || len(files) > 0 {
		t.Errorf("files that are left: %v, %v", files, err)
	}
}

func TestKeptIsNamed(t *testing.T) {
	on, db := place(t)
	w, err := measure.NewWorkbench(t.Context(), on.Servers, measure.Config{Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	b := write(t, w, measure.Load{Rows: 1, PayloadBytes: 200, PerTransaction: 1, Keys: 1})
	drain(t, b, relay(t, on))
	if err := errors.Join(b.Close(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, l := range w.Kept() {
		kept = append(kept, l.Object)
		if !strings.HasPrefix(l.Object, "destinations") {
			db.Exec(t, l.Drop)
		}
	}
	name := "destinations " + strings.ReplaceAll(strings.TrimPrefix(w.Name(), "outbox_cdc_bench_"), "_", "-")
	if len(kept) != 3 || !strings.HasPrefix(kept[0], "destinations outbox-cdc-bench-"+strings.TrimPrefix(name, "destinations ")) {
		t.Errorf("kept: %q", kept)
	}
	noObjects(t, db) // after their statements
}

func TestLeftoversOfAKilledBench(t *testing.T) {
	on, db := place(t)
	running := newBench(t, on.Servers, measure.Config{})
	db.Exec(t, `
		CREATE SCHEMA outbox_cdc_bench_dead;
		CREATE TABLE outbox_cdc_bench_dead.outbox (id int);
		CREATE PUBLICATION outbox_cdc_bench_dead FOR TABLE outbox_cdc_bench_dead.outbox;
		CREATE SCHEMA outbox_cdc_benchmark`)
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, "outbox_cdc_bench_dead_2_"+db.Name)
	if _, err := admin(t, on).CreateTopics(t.Context(), 1, 1, nil, "outbox-cdc-bench-dead.t0", "outbox-cdc-bench-dead.t1", "outbox-cdc-benchmark"); err != nil {
		t.Fatal(err)
	}
	found, err := measure.FindLeftovers(t.Context(), on.Servers)
	if err != nil {
		t.Fatal(err)
	}
	var objects []string
	for _, l := range found {
		objects = append(objects, l.Object)
		if !strings.HasPrefix(l.Object, "destinations") {
			db.Exec(t, l.Drop)
		}
	}
	want := []string{
		"slot outbox_cdc_bench_dead_2_" + db.Name, "publication outbox_cdc_bench_dead", "schema outbox_cdc_bench_dead", "destinations outbox-cdc-bench-dead*",
	}
	if diff := cmp.Diff(want, objects); diff != "" {
		t.Errorf("while %s runs (-want +got):\n%s", running.Name(), diff)
	}
	if n := pgtest.QueryRow[int](t, db, objectsSQL); n != 3 { // schema and publication of the running benchmark, and outbox_cdc_benchmark
		t.Errorf("after their statements %d slots, publications and schemas are left", n)
	}
}

func TestServerErrors(t *testing.T) {
	on, db := place(t)
	db.Exec(t, `CREATE ROLE bench_poor LOGIN`)
	db.Exec(t, `CREATE ROLE bench_owner LOGIN; GRANT CREATE ON DATABASE `+db.Name+` TO bench_owner`)
	defer db.Exec(t, `DROP OWNED BY bench_owner; DROP ROLE bench_owner; DROP ROLE bench_poor`)
	as := func(role string) string { return strings.Replace(db.DSN, "postgres@", role+"@", 1) }
	for name, c := range map[string]struct {
		servers measure.Servers
		broker  bool
		advice  string
	}{
		"may not create":    {measure.Servers{DSN: as("bench_poor"), Broker: on.Broker}, false, "GRANT CREATE"},
		"may not replicate": {measure.Servers{DSN: as("bench_owner"), Broker: on.Broker}, false, "REPLICATION"},
		"no Postgres":       {measure.Servers{DSN: "postgres://127.0.0.1:1/x", Broker: on.Broker}, false, "source.dsn"},
		"no Kafka":          {measure.Servers{DSN: db.DSN, Broker: kafka(t, "127.0.0.1:1")}, true, "sink.kafka.brokers"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := measure.NewWorkbench(t.Context(), c.servers, measure.Config{})
			if err == nil {
				_, err = w.StartUp(t.Context(), relay(t, on))
				if closeErr := w.Close(t.Context()); closeErr != nil {
					t.Error(closeErr)
				}
			}
			e, ok := errors.AsType[*measure.ServerError](err)
			if !ok || e.Broker != c.broker || !strings.Contains(e.Advice, c.advice) {
				t.Errorf("%v (%+v)", err, e)
			}
			nothingIsLeft(t, on, db)
		})
	}
}
