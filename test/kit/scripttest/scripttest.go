// Package scripttest runs testscript scripts, which test this repository's programs by their command lines.
//
// In addition to testscript's own commands, a script can use:
//
//	exitcode 2 outbox-cdc run     runs a command and checks its exit code
//	lastline 'exit 2 '            checks how the last line of the last command's standard error begins
//	sql 'INSERT …'                runs statements in the script's database
//	await 'SELECT active FROM …'  waits until a query returns true
//	confirms SLOT                 waits until the slot's confirmed_flush_lsn reaches the current end of the WAL
package scripttest

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts") //nolint:gochecknoglobals // a flag of the test run

// A Program is the Main function of a program of this repository.
type Program func(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int

// Main runs the tests of m, whose scripts can call the programs by their names. Call it from TestMain.
func Main(m testscript.TestingM, programs map[string]Program) {
	commands := make(map[string]func())
	for name, program := range programs {
		commands[name] = func() { // like the program's own main
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			context.AfterFunc(ctx, stop)
			os.Exit(program(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
		}
	}
	testscript.Main(m, commands)
}

// Run runs the scripts of a directory without servers.
func Run(t *testing.T, dir string) {
	t.Helper()
	testscript.Run(t, testscript.Params{Dir: dir, Cmds: commands(), UpdateScripts: *update, Setup: exitAtOnce})
}

// RunOnServers runs the scripts of a directory. Each script gets a new database ($DSN) and an in-process
// Kafka ($BROKERS).
func RunOnServers(t *testing.T, dir string) {
	t.Helper()
	pgtest.Server(t)
	testscript.Run(t, testscript.Params{
		Dir: dir, Cmds: commands(), UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			db := pgtest.Database(t)
			env.Setenv("DSN", db.DSN)
			env.Setenv("POOR", strings.Replace(db.DSN, "postgres@", "poor@", 1)) // a role that a script can create
			env.Setenv("BROKERS", strings.Join(kafkatest.Fake(t).Addrs, ","))
			return exitAtOnce(env)
		},
	})
}

// commands returns the commands that this package adds to testscript's own.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exitcode": exitCode,
		"lastline": lastLine,
		"sql":      sql,
		"await":    await,
		"confirms": confirms,
	}
}

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
	deadline := time.Now().Add(wait.Patience())
	for query(ts, args[0]) != "t" {
		if time.Now().After(deadline) {
			ts.Fatalf("not true in time: %s", args[0])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// confirms waits until a slot's confirmed_flush_lsn reaches the position that was the end of the WAL at the
// call: confirms SLOT. Other scripts write to the same WAL at the same time, so that it never waits for the
// current end.
func confirms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: confirms slot")
	}
	end := query(ts, `SELECT pg_current_wal_insert_lsn()`)
	await(ts, false, []string{`SELECT confirmed_flush_lsn >= '` + end + `' FROM pg_replication_slots WHERE slot_name = '` + args[0] + `'`})
}

// query runs statements and returns the first column of the last row, as text.
func query(ts *testscript.TestScript, statements string) string {
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, ts.Getenv("DSN"))
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

// lastLine checks how the last line of the last command's standard error begins: lastline 'exit 2 '
func lastLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lastline text")
	}
	stderr := strings.TrimRight(ts.ReadFile("stderr"), "\n")
	if last := stderr[strings.LastIndexByte(stderr, '\n')+1:]; !strings.HasPrefix(last, args[0]) {
		ts.Fatalf("last line is %q, want %q", last, args[0])
	}
}

// exitAtOnce turns off the race detector's wait of one second at the exit of each command.
func exitAtOnce(env *testscript.Env) error {
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	return nil
}
