package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

const cdcPassword = "secret-word"

// A gate is a server that asks every role but the superuser for a password, by a
// pg_hba.conf that tests may change.
type gate struct {
	*pgserver.Server

	mu    sync.Mutex
	lines []string // beside the superuser's, in the order in which they are looked at
}

func newGate(t *testing.T, settings map[string]string) *gate {
	t.Helper()
	g := &gate{Server: pgtest.Start(t, pgserver.Config{Settings: settings})}
	g.admit(t, "host all all 127.0.0.1/32 scram-sha-256")
	return g
}

// admit puts a line before the others of pg_hba.conf.
func (g *gate) admit(t *testing.T, line string) {
	t.Helper()
	g.change(t, func() { g.lines = append([]string{line}, g.lines...) })
}

// forget takes a line out.
func (g *gate) forget(t *testing.T, line string) {
	t.Helper()
	g.change(t, func() { g.lines = slices.DeleteFunc(g.lines, func(l string) bool { return l == line }) })
}

func (g *gate) change(t *testing.T, f func()) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	const superuser = "host all postgres 127.0.0.1/32 trust\n"
	rig.Must(t, g.WriteFile("pg_hba.conf", []byte(superuser+strings.Join(g.lines, "\n")+"\n")))
	admin := &pgtest.DB{DSN: g.DSN("postgres")}
	before := pgtest.QueryRow[time.Time](t, admin, `SELECT pg_conf_load_time()`)
	admin.Exec(t, `SELECT pg_reload_conf()`)
	wait.For(t, "pg_hba.conf to be read", func() bool {
		return pgtest.QueryRow[time.Time](t, admin, `SELECT pg_conf_load_time()`).After(before)
	})
}

// A guest is a rig whose relay logs in as a role that may do what README.md says and nothing
// else. Publication and slot were made before, by the owner of the table.
type guest struct {
	*rig.Rig
	role string
}

// newGuest makes one, with more settings of its relay.
func newGuest(t *testing.T, g *gate, more string) *guest {
	t.Helper()
	r := rig.NewOn(t, rig.DatabaseOn(t, g.Server), kafkatest.Broker(t))
	guest := &guest{r, "cdc_" + r.DB.Name}
	owner := "owner_" + r.DB.Name
	r.DB.Exec(t, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN REPLICATION PASSWORD '%[2]s'; CREATE ROLE %[3]s LOGIN REPLICATION PASSWORD '%[2]s'`,
		guest.role, cdcPassword, owner))
	r.DB.Exec(t, fmt.Sprintf(`ALTER DATABASE %s OWNER TO %s; ALTER TABLE outbox OWNER TO %[2]s`, r.DB.Name, owner))
	out, code := rig.Command(t, "setup", "--dsn", replaceUser(r.DB.DSN, owner+":"+cdcPassword), "--publication", rig.Publication, "--slot", r.Slot)
	if code != 0 {
		t.Fatalf("setup as the owner: exit code %d\n%s", code, out)
	}
	r.Config = rig.WriteConfig(t, replaceUser(r.DB.DSN, guest.role+":"+cdcPassword), r.Kafka.Addrs[0], r.Slot, r.Topic, more)
	return guest
}

// throwOut ends the relay's connections.
func (g *guest) throwOut(t *testing.T) {
	t.Helper()
	g.DB.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, g.role)
}

// Access that is lost is waited for, as long as a change may be in progress; mended by then,
// the relay goes on. Otherwise it ends with what the server says and what to do.
func TestAccessLost(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	server := newGate(t, nil)
	type change func(t *testing.T, g *guest)
	statement := func(sql string) change {
		return func(t *testing.T, g *guest) {
			t.Helper()
			g.DB.Exec(t, strings.NewReplacer("ROLE", "ROLE "+g.role, "DATABASE", "DATABASE "+g.DB.Name).Replace(sql))
		}
	}
	rejection := func(f func(*gate, *testing.T, string)) change {
		return func(t *testing.T, g *guest) {
			t.Helper()
			f(server, t, "host "+g.DB.Name+" "+g.role+" 127.0.0.1/32 reject")
		}
	}
	for name, tc := range map[string]struct {
		lose, mend change
		says       []string // of the server and of us
	}{
		"password rotated": {
			statement(`ALTER ROLE PASSWORD 'another'`), statement(`ALTER ROLE PASSWORD '` + cdcPassword + `'`),
			[]string{"28P01", "password authentication failed", "source.dsn"},
		},
		"login taken": {
			statement(`ALTER ROLE NOLOGIN`), statement(`ALTER ROLE LOGIN`),
			[]string{"28000", "not permitted to log in", "LOGIN"},
		},
		"replication taken": {
			statement(`ALTER ROLE NOREPLICATION`), statement(`ALTER ROLE REPLICATION`),
			[]string{"42501", "ALTER ROLE … REPLICATION"},
		},
		"database closed": {
			statement(`REVOKE CONNECT ON DATABASE FROM PUBLIC`), statement(`GRANT CONNECT ON DATABASE TO PUBLIC`),
			[]string{"42501", "permission denied for database", "GRANT CONNECT"},
		},
		"refused by pg_hba.conf": {
			rejection((*gate).admit), rejection((*gate).forget),
			[]string{"28000", "pg_hba.conf", "pg_reload_conf()"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, server, "startup_timeout: 8s")
			process := g.Run(t)
			g.Load.Run(t.Context(), t, 200)
			g.Arrived(t)

			tc.lose(t, g)
			g.throwOut(t)
			process.Logged(t, tc.says[0])
			g.Load.Run(t.Context(), t, 200)
			tc.mend(t, g)
			process.LoggedTimes(t, "msg=streaming", 2)
			g.Arrived(t)
			g.Settle(t, 0)

			tc.lose(t, g)
			g.throwOut(t)
			if code := process.Exit(t); code != 10 {
				t.Errorf("exit code %d, want 10", code)
			}
			out := process.Stderr.String()
			for _, want := range append(tc.says, "exit 10 (", g.role) {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not said:\n%s", want, out)
				}
			}
			if strings.Contains(out, cdcPassword) {
				t.Error("the password is shown")
			}
		})
	}
}

// TestPasswordCommandFails: a password command that fails ends the relay at the start. Later the relay waits for it, also
// longer than startup_timeout, and continues with the new password.
func TestPasswordCommandFails(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	dir := t.TempDir()
	token, runs := filepath.Join(dir, "token"), filepath.Join(dir, "runs")
	const patience = 5 * time.Second
	g := newGuest(t, newGate(t, nil), fmt.Sprint("startup_timeout: ", patience))
	text, err := os.ReadFile(g.Config)
	rig.Must(t, err)
	command := fmt.Sprintf(`source: {password_command: [/bin/sh, -c, "echo run >>%s; cat %s"], `, runs, token)
	rig.Must(t, os.WriteFile(g.Config, []byte(strings.Replace(strings.ReplaceAll(string(text), cdcPassword, "not-this-one"), "source: {", command, 1)), 0o600))
	issue := func(password string) {
		t.Helper()
		rig.Must(t, os.WriteFile(token, []byte(password+"\n"), 0o600))
	}

	g.Refused(t, 10, "no password", "source.password_command", "No such file", "exit 10 (")
	issue(cdcPassword)
	process := g.Run(t)
	g.Load.Run(t.Context(), t, 200)
	g.Arrived(t)

	g.DB.Exec(t, `ALTER ROLE `+g.role+` PASSWORD 'another-word'`)
	rig.Must(t, os.Remove(token))
	rig.Must(t, os.Remove(runs))
	g.throwOut(t)
	process.Logged(t, "No such file")
	<-time.After(patience)
	wait.For(t, "failures for longer than startup_timeout", func() bool {
		tries, _ := os.ReadFile(runs)
		return strings.Count(string(tries), "run") > 4
	})
	issue("another-word")
	process.LoggedTimes(t, "msg=streaming", 2)
	g.Load.Run(t.Context(), t, 200)
	g.Arrived(t)
	process.Terminate(t)
	g.Settle(t, 0)
	if out := process.Stderr.String(); strings.Contains(out, cdcPassword) || strings.Contains(out, "another-word") {
		t.Error("a password is shown")
	}
}

// While the server has no room, at the start and later, the relay waits, names the setting,
// and goes on when there is room.
func TestServerFull(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	for name, tc := range map[string]struct {
		settings map[string]string
		replica  bool // it is walsenders that there are too many of
	}{
		"max_wal_senders": {map[string]string{"max_wal_senders": "1"}, true},
		"max_connections": {map[string]string{"max_connections": "12"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newGate(t, tc.settings)
			g := newGuest(t, server, "")
			g.Load.Writers = 1
			dsn := g.DB.DSN
			if !tc.replica {
				dsn = replaceUser(dsn, "owner_"+g.DB.Name+":"+cdcPassword) // the superuser has a reserve
			}

			leave := crowd(t, dsn, tc.replica)
			process := rig.Start(t, "run", "-c", g.Config)
			process.Logged(t, "waiting for the source")
			process.Logged(t, name)
			leave()
			process.Logged(t, "msg=streaming")
			g.Load.Run(t.Context(), t, 200)
			g.Arrived(t)

			process.Signal(t, syscall.SIGSTOP)
			g.throwOut(t)
			leave = crowd(t, dsn, tc.replica)
			full := process.Times("53300")
			process.Signal(t, syscall.SIGCONT)
			process.LoggedTimes(t, "53300", full+1)
			g.Load.Run(t.Context(), t, 200)
			leave()
			process.LoggedTimes(t, "msg=streaming", 2)
			g.Arrived(t)
			process.Terminate(t)
			g.Settle(t, 0)
			if n := process.Times("53300"); n < 2 || n > 4 {
				t.Errorf("%d lines say that the server is full:\n%s", n, process.Stderr)
			}
		})
	}
}

// crowd opens connections until the server takes no more. What it returns closes them.
func crowd(t *testing.T, dsn string, replication bool) (leave func()) {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	rig.Must(t, err)
	if replication {
		cfg.RuntimeParams["replication"] = "database"
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	var all []*pgx.Conn
	wait.For(t, "the server to be full", func() bool {
		conn, err := pgx.ConnectConfig(context.Background(), cfg)
		if err == nil {
			all = append(all, conn)
			return false
		}
		return strings.Contains(err.Error(), "53300") && len(all) > 0
	})
	leave = sync.OnceFunc(func() {
		for _, conn := range all {
			conn.Close(context.Background())
		}
	})
	t.Cleanup(leave)
	return leave
}
