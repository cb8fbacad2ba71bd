package kafkatest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	fetchTimeout = 5 * time.Minute
	startTimeout = 3 * time.Minute
	needsBroker  = "it needs a real Kafka"
)

// shared holds the broker that the tests of this binary share. The broker runs until
// stopShared, or until the process exits.
var shared struct { //nolint:gochecknoglobals // one per test binary is the point
	sync.Mutex
	vm     jvm   // zero before the first call of vm
	err    error // the error of findJVM
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

// Broker returns the real broker of [Real] in a full run, and otherwise a kfake of this test.
func Broker(tb testing.TB) *Cluster {
	tb.Helper()
	if need.Full() {
		return Real(tb)
	}
	return Fake(tb, kfake.DefaultNumPartitions(defaultPartitions)).Cluster
}

// Real returns the real broker that the tests share. If OUTBOX_TEST_KAFKA is set, all
// packages share it. A test must use topics of its own. Unless the run is a full one,
// Real skips the test.
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

// Each runs f in a subtest with kfake and, in a full run, in another with the real broker.
func Each(t *testing.T, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { f(t, Fake(t).Cluster) })
	if need.Full() {
		t.Run("broker", func(t *testing.T) { f(t, Real(t)) })
	}
}

// own limits how many tests of this binary have their own brokers at the same time: the start of a
// JVM keeps a processor busy for seconds.
var own = make(chan struct{}, 2) //nolint:gochecknoglobals // one per test binary is the point

// Start starts a real broker for this test alone and stops it when the test ends. It waits while two
// other tests have brokers of their own. Unless the run is a full one, Start skips the test.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	need.FullRun(tb, needsBroker)
	if cfg.Joins == nil { // otherwise the test is already counted
		own <- struct{}{}
		tb.Cleanup(func() { <-own })
	}
	s := mustLaunch(tb, vm(tb), cfg)
	stopAfter(tb, s)
	return s
}

// stopAfter stops the broker when the test ends.
func stopAfter(tb testing.TB, s *Server) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the broker's log:\n%s", s.logTail())
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the broker: %v", err)
		}
	})
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
		_ = shared.server.Stop() // kills the process even if it returns an error
		shared.server = nil
	}
}

// A FakeCluster is an in-process kfake cluster.
type FakeCluster struct {
	*Cluster
	Control *kfake.Cluster // controls kfake's behavior

	closing chan struct{} // closed when sleeping control functions must end

	mu       sync.Mutex
	closed   bool
	sleeping sync.WaitGroup // control functions in SleepControl
}

// Fake starts a kfake cluster and closes it when the test ends. Without
// options it has three brokers.
func Fake(tb testing.TB, opts ...kfake.Opt) *FakeCluster {
	tb.Helper()
	fake, err := kfake.NewCluster(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	c := &FakeCluster{Cluster: &Cluster{Addrs: fake.ListenAddrs()}, Control: fake, closing: make(chan struct{})}
	tb.Cleanup(c.close)
	return c
}

// SleepControl is like kfake's SleepControl, and returns also when the test ends. Tests call it instead of kfake's: a cluster that is
// closed while a control function sleeps may wait for a mutex that nothing unlocks, for ever.
func (c *FakeCluster) SleepControl(wakeup func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.sleeping.Add(1)
	}
	c.mu.Unlock()
	if closed {
		return
	}
	defer c.sleeping.Done()
	awake := make(chan struct{})
	go func() {
		defer close(awake)
		wakeup()
	}()
	c.Control.SleepControl(func() {
		select {
		case <-awake:
		case <-c.closing:
		}
	})
}

// close wakes sleeping control functions, waits for them and closes the cluster.
func (c *FakeCluster) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.closing)
	c.sleeping.Wait()
	c.Control.Close()
}

var errHungUp = errors.New("the test closes the connection")

// HangUp closes the connection of the next produce request with records of the topic, and does not store them. A relay
// also writes to its position topic, over other connections.
func (c *FakeCluster) HangUp(topic string) {
	c.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce, ok := req.(*kmsg.ProduceRequest)
		return nil, errHungUp, ok && slices.ContainsFunc(produce.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == topic })
	})
}

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// Main runs m's tests, stops the shared broker and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the shared broker. Use it in a TestMain
// that also wraps m for other packages.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}
