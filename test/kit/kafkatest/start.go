package kafkatest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	fetchTimeout = 5 * time.Minute
	startTimeout = 3 * time.Minute
	needsBroker  = "it needs a real Kafka"
)

// shared holds the broker that the tests of this binary share. stopShared stops it;
// otherwise it ends with the process.
var shared struct { //nolint:gochecknoglobals // one per test binary is the point
	sync.Mutex
	vm     jvm   // zero until somebody asks
	err    error // why there is none
	server *Server
}

// vm returns the jvm that brokers run in.
func vm(tb testing.TB) jvm {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.vm == (jvm{}) && shared.err == nil {
		ctx, cancel := context.WithTimeout(tb.Context(), fetchTimeout)
		defer cancel()
		shared.vm, shared.err = findJVM(ctx)
	}
	if shared.err != nil {
		need.Missing(tb, "no Kafka for this test: %v", shared.err)
	}
	return shared.vm
}

// Broker returns the Kafka that the run uses: in a full run that of [Real], otherwise a kfake of this
// test.
func Broker(tb testing.TB) *Cluster {
	tb.Helper()
	if need.Full() {
		return Real(tb)
	}
	return Fake(tb, kfake.DefaultNumPartitions(defaultPartitions)).Cluster
}

// Real returns the real broker that the tests share, across packages if
// OUTBOX_TEST_KAFKA is set. A test must use topics of its own. Only in a full run.
func Real(tb testing.TB) *Cluster {
	tb.Helper()
	need.FullRun(tb, needsBroker)
	if addrs := os.Getenv("OUTBOX_TEST_KAFKA"); addrs != "" {
		return &Cluster{Addrs: strings.Split(addrs, ",")}
	}
	vm := vm(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = mustLaunch(tb, vm, Config{})
	}
	return shared.server.Cluster
}

// Each runs f as a subtest with kfake and, in a full run, as another with the real broker.
func Each(t *testing.T, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { f(t, Fake(t).Cluster) })
	if need.Full() {
		t.Run("broker", func(t *testing.T) { f(t, Real(t)) })
	}
}

// own bounds how many tests of this binary have brokers of their own at a time: a JVM takes a
// processor for seconds to start.
var own = make(chan struct{}, 2) //nolint:gochecknoglobals // one per test binary is the point

// Start starts a real broker for this test alone and stops it when the test ends. Only in a full run.
// Start waits while too many other tests have a broker.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	need.FullRun(tb, needsBroker)
	if cfg.Joins == nil { // else its test is one of them
		own <- struct{}{}
		tb.Cleanup(func() { <-own })
	}
	s := mustLaunch(tb, vm(tb), cfg)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the broker's log:\n%s", s.logTail())
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the broker: %v", err)
		}
	})
	return s
}

func mustLaunch(tb testing.TB, vm jvm, cfg Config) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := launch(ctx, vm, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		_ = shared.server.Stop() // its process is gone even then
		shared.server = nil
	}
}

// A FakeCluster is an in-process kfake cluster.
type FakeCluster struct {
	*Cluster
	Control *kfake.Cluster // what kfake can be made to do
}

// Fake starts a kfake cluster and closes it when the test ends. Without
// options it has three brokers.
func Fake(tb testing.TB, opts ...kfake.Opt) *FakeCluster {
	tb.Helper()
	fake, err := kfake.NewCluster(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(fake.Close)
	return &FakeCluster{Cluster: &Cluster{Addrs: fake.ListenAddrs()}, Control: fake}
}

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// Main runs m's tests, stops the shared broker and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the shared broker, for a TestMain
// that uses other packages too.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}
