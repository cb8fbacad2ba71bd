package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

const (
	fetchTimeout = 3 * time.Minute
	startTimeout = 2 * time.Minute
	stopTimeout  = 10 * time.Second
)

// shared holds the servers that the tests of this binary share. They run until
// stopShared, or until the process exits.
var shared struct { //nolint:gochecknoglobals // one per test binary is the point
	sync.Mutex
	installs []pgserver.Install          // empty before the first call of installs
	err      error                       // the error of findInstalls
	servers  map[string]*pgserver.Server // by Install.BinDir
	admins   map[*pgserver.Server]*DB    // database postgres of the shared servers
}

// installs returns the installations that the test run uses, at least one, the default first.
func installs(tb testing.TB) []pgserver.Install {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if len(shared.installs) == 0 && shared.err == nil {
		ctx, cancel := context.WithTimeout(tb.Context(), fetchTimeout)
		defer cancel()
		shared.installs, shared.err = findInstalls(ctx)
	}
	if shared.err != nil {
		need.Missing(tb, "no Postgres for this test: %v", shared.err)
	}
	return shared.installs
}

// Server returns the shared server of the default version. Tests must not stop or
// reconfigure it.
func Server(tb testing.TB) *pgserver.Server {
	tb.Helper()
	return sharedServer(tb, installs(tb)[0])
}

// EachVersion runs f as a subtest for every available version, on the shared server of
// that version.
func EachVersion(t *testing.T, f func(t *testing.T, srv *pgserver.Server)) {
	t.Helper()
	onEach(t, installs(t), f)
}

// EachInstall runs f as a subtest for every available version. It starts no server.
func EachInstall(t *testing.T, f func(t *testing.T, i pgserver.Install)) {
	t.Helper()
	for _, i := range installs(t) {
		t.Run(fmt.Sprintf("postgres%d", i.Major), func(t *testing.T) { f(t, i) })
	}
}

// OldestAndNewest is like EachVersion, with the oldest and the newest version only.
func OldestAndNewest(t *testing.T, f func(t *testing.T, srv *pgserver.Server)) {
	t.Helper()
	all := slices.SortedFunc(slices.Values(installs(t)), func(a, b pgserver.Install) int { return a.Major - b.Major })
	if len(all) > 2 {
		all = []pgserver.Install{all[0], all[len(all)-1]}
	}
	onEach(t, all, f)
}

// NewestTwo is like EachVersion, with the two newest versions only.
func NewestTwo(t *testing.T, f func(t *testing.T, srv *pgserver.Server)) {
	t.Helper()
	all := slices.SortedFunc(slices.Values(installs(t)), func(a, b pgserver.Install) int { return a.Major - b.Major })
	onEach(t, all[max(0, len(all)-2):], f)
}

func onEach(t *testing.T, all []pgserver.Install, f func(t *testing.T, srv *pgserver.Server)) {
	t.Helper()
	for _, i := range all {
		t.Run(fmt.Sprintf("postgres%d", i.Major), func(t *testing.T) { f(t, sharedServer(t, i)) })
	}
}

func sharedServer(tb testing.TB, i pgserver.Install) *pgserver.Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if srv := shared.servers[i.BinDir]; srv != nil {
		return srv
	}
	srv := launch(tb, pgserver.Config{BinDir: i.BinDir, Data: fromTemplate(tb, i.BinDir, "pgdata")})
	if shared.servers == nil {
		shared.servers, shared.admins = make(map[string]*pgserver.Server), make(map[*pgserver.Server]*DB)
	}
	shared.servers[i.BinDir] = srv
	shared.admins[srv] = &DB{Name: "postgres", DSN: srv.DSN("postgres"), Server: srv, reuses: true}
	// Its first session writes the file pg_internal.init, which new databases then have too. Without it, their first session
	// reads the whole catalog.
	(&DB{Name: "template1", DSN: srv.DSN("template1"), Server: srv}).Exec(tb, "SELECT 1")
	return srv
}

// adminOf returns the database postgres of srv. On a shared server, all tests use the same connection.
func adminOf(srv *pgserver.Server) *DB {
	shared.Lock()
	defer shared.Unlock()
	if admin := shared.admins[srv]; admin != nil {
		return admin
	}
	return &DB{Name: "postgres", DSN: srv.DSN("postgres"), Server: srv}
}

// isShared reports whether srv is a shared server.
func isShared(srv *pgserver.Server) bool {
	shared.Lock()
	defer shared.Unlock()
	return shared.admins[srv] != nil
}

// Start starts a server for this test alone and stops it when the test ends. If cfg
// sets neither BinDir nor Major, the server has the default version. Servers of one
// installation have the same system identifier: see [StartOther].
func Start(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	cfg = withPrograms(tb, cfg)
	if cfg.Data == nil {
		cfg.Data = fromTemplate(tb, cfg.BinDir, "pgdata")
	}
	return startUntilEnd(tb, cfg)
}

// StartOther is like Start, but the server has another system identifier.
func StartOther(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	cfg = withPrograms(tb, cfg)
	if cfg.Upgrade == nil {
		cfg.Data = fromTemplate(tb, cfg.BinDir, "pgother")
	}
	return startUntilEnd(tb, cfg)
}

// withPrograms returns cfg with BinDir set.
func withPrograms(tb testing.TB, cfg pgserver.Config) pgserver.Config {
	tb.Helper()
	switch {
	case cfg.BinDir != "":
	case cfg.Major == 0:
		cfg.BinDir = installs(tb)[0].BinDir
	default:
		i, err := pgserver.Find(tb.Context(), cfg.Major, nil)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.BinDir = i.BinDir
	}
	return cfg
}

func startUntilEnd(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	srv := launch(tb, cfg)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the log of Postgres %s:\n%s", srv.Install(), srv.LogTail())
		}
		if err := stop(srv); err != nil {
			tb.Errorf("stop Postgres: %v", err)
		}
	})
	return srv
}

// launch starts a server with the settings that tests of a relay need in addition
// to the defaults.
func launch(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	settings := map[string]string{"max_prepared_transactions": "10"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	srv, err := pgserver.Start(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return srv
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, srv := range shared.servers {
		_ = stop(srv) // leaves no process even if it returns an error
	}
	clear(shared.servers)
	clear(shared.admins)
}

func stop(srv *pgserver.Server) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errors.New("timeout"))
	defer cancel()
	return srv.Stop(ctx)
}

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// Main runs m's tests, stops the shared servers and exits. It must be the first
// call of TestMain.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the shared servers. Use it in a
// TestMain that also wraps m for other packages. It must be the first call of
// TestMain: in a child process that downloads Postgres it does not return.
func Wrap(m Runner) Runner {
	pgserver.Init()
	return wrapped{m}
}

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}
