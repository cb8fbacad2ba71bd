package cli_test

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

func TestMain(m *testing.M) {
	testscript.Main(pgtest.Wrap(m), map[string]func(){
		"outbox-cdc": func() { // as cmd/outbox-cdc does it
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			context.AfterFunc(ctx, stop)
			os.Exit(cli.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
		},
	})
}

// commands are for all scripts.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exitcode": exitCode,
		"lastline": lastLine,
		"sql":      sql,
		"await":    await,
	}
}

// dbKey is the database in a script's values.
type dbKey struct{}

// sql runs statements in the script's database: sql 'INSERT …'
func sql(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql statements")
	}
	query(ts, args[0])
}

// await waits until a query returns true: await 'SELECT active FROM …'
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await query")
	}
	deadline := time.Now().Add(20 * time.Second)
	for query(ts, args[0]) != "t" {
		if time.Now().After(deadline) {
			ts.Fatalf("not true in time: %s", args[0])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// query returns the first column of the last row, as text.
func query(ts *testscript.TestScript, statements string) string {
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, ts.Value(dbKey{}).(*pgtest.DB).DSN)
	ts.Check(err)
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.Exec(ctx, statements).ReadAll()
	ts.Check(err)
	for _, r := range slices.Backward(results) {
		if len(r.Rows) > 0 {
			return string(r.Rows[len(r.Rows)-1][0])
		}
	}
	return ""
}

// exitCode runs a command and checks its exit code: exitcode 2 outbox-cdc run
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode code command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// lastLine checks how the last line of the last command's standard error begins.
func lastLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lastline text")
	}
	stderr := strings.TrimRight(ts.ReadFile("stderr"), "\n")
	if last := stderr[strings.LastIndexByte(stderr, '\n')+1:]; !strings.HasPrefix(last, args[0]) {
		ts.Fatalf("last line is %q, want %q", last, args[0])
	}
}

// exitAtOnce spares every command the second that the race detector waits at its end.
func exitAtOnce(env *testscript.Env) error {
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	return nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Cmds: commands(), UpdateScripts: *update, Setup: exitAtOnce})
}

// TestServerScripts runs scripts that have a database of their own, $DSN, and an in-process
// Kafka, $BROKERS.
func TestServerScripts(t *testing.T) {
	pgtest.Server(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/servers", Cmds: commands(), UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			db := pgtest.Database(t)
			env.Values[dbKey{}] = db
			env.Setenv("DSN", db.DSN)
			env.Setenv("POOR", strings.Replace(db.DSN, "postgres@", "poor@", 1)) // a role that a script may make
			env.Setenv("BROKERS", strings.Join(kafkatest.Fake(t).Addrs, ","))
			return exitAtOnce(env)
		},
	})
}
