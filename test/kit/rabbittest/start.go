package rabbittest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// MaxMessageSize is max_message_size of the server of [Real].
const MaxMessageSize = 1 << 20

// startTimeout limits the start of a server, and a command of its tools, which starts an Erlang of its own.
const startTimeout = 2 * time.Minute

// shared holds the server that the tests of this binary share. It runs until stopShared, or until the process exits.
var shared struct { //nolint:gochecknoglobals // one per test binary is the point
	sync.Mutex
	server *Server
}

// Real returns the server that the tests of this binary share. A test must use a virtual host, or names, of its own.
// Unless the run is a full one, Real skips the test.
func Real(tb testing.TB) *Server {
	tb.Helper()
	needRabbit(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = mustLaunch(tb, Config{
			TLS: true, Plugins: []string{"rabbitmq_auth_mechanism_ssl"},
			Settings: map[string]string{"max_message_size": strconv.Itoa(MaxMessageSize)},
		})
	}
	return shared.server
}

// Start starts a server for this test alone and stops it when the test ends. Unless the run is a full one, Start skips
// the test.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	needRabbit(tb)
	s := mustLaunch(tb, cfg)
	s.stopAfter(tb)
	return s
}

// stopAfter stops the server when the test ends.
func (s *Server) stopAfter(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the log of %s:\n%s", s.node, s.log)
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop RabbitMQ: %v", err)
		}
	})
}

func needRabbit(tb testing.TB) {
	tb.Helper()
	need.FullRun(tb, "it needs a RabbitMQ server")
	if _, err := findInstall(); err != nil {
		need.Missing(tb, "no RabbitMQ for this test: %v", err)
	}
}

func mustLaunch(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := Launch(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Run runs rabbitmqctl and returns its output. It fails the test if the command fails.
func (s *Server) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	// A cleanup of the test also calls Run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startTimeout)
	defer cancel()
	out, err := s.Ctl(ctx, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// VHost creates a virtual host, in which guest has all permissions, and returns its URL without TLS. When the test ends,
// VHost deletes it.
func (s *Server) VHost(tb testing.TB) string {
	tb.Helper()
	name := s.VHostName(tb)
	return s.URL(name)
}

// VHostName is like VHost, and returns the name of the virtual host.
func (s *Server) VHostName(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test%d", s.vhosts.Add(1))
	s.Run(tb, "add_vhost", name)
	s.Run(tb, "set_permissions", "--vhost", name, "guest", ".*", ".*", ".*")
	tb.Cleanup(func() {
		if s.Running() {
			s.Run(tb, "delete_vhost", name)
		}
	})
	return name
}

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// Main runs m's tests, stops the shared server and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the shared server. Use it in a TestMain that also wraps m for other
// packages.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		_ = shared.server.Stop() // kills the process even if it returns an error
		shared.server = nil
	}
}
