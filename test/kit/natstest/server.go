package natstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const startTimeout = 2 * time.Minute

// A Server is a server in this process, with its data. It runs from Launch or Restart until Shutdown or Stop. Its methods are
// safe for concurrent use.
type Server struct {
	Client

	options server.Options
	dir     *serverproc.Dir
	port    *serverproc.Port // keeps the address while the server is down

	mu      sync.Mutex
	running *server.Server // nil after Shutdown
}

// Launch starts a server with JetStream and returns when it accepts connections. Each configure changes the server's options
// before the first start. The server creates files only in a temporary directory. The caller must call Stop. Tests call Start
// instead.
func Launch(configure ...func(*server.Options)) (*Server, error) {
	dir, err := serverproc.MakeDir("", "outbox-cdc-nats-")
	if err != nil {
		return nil, err
	}
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	s := &Server{dir: dir, port: port, options: server.Options{
		ServerName: "natstest", Host: "127.0.0.1", Port: port.Number(),
		NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir.Path(),
	}}
	for _, f := range configure {
		f(&s.options)
	}
	s.Client = Client{Addrs: []string{port.Addr()}}
	if err := errors.Join(keepFolder(dir.Path()), s.start()); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// keepFolder gives the folder of the default account's streams in storeDir an entry that is not a stream. After the last stream
// of an account is deleted, a server removes the folder if it is empty, in the background, and a stream that a test creates at
// that time fails.
func keepFolder(storeDir string) error {
	return os.MkdirAll(filepath.Join(storeDir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams", "none"), 0o700)
}

// Stop shuts the server down and removes its data. It cannot be restarted after that.
func (s *Server) Stop() {
	s.Shutdown()
	s.port.Close()
	_ = s.dir.Remove() // a file that the server wrote meanwhile is removed later
}

// Start is like Launch, and stops the server when the test ends.
func Start(tb testing.TB, configure ...func(*server.Options)) *Server {
	tb.Helper()
	s, err := Launch(configure...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	options := s.options // the server changes them
	running, err := newServer(&options)
	if err != nil {
		return err
	}
	log := new(errorLog)
	running.SetLogger(log, false, false)
	running.Start()
	if !running.ReadyForConnections(startTimeout) {
		running.Shutdown()
		return fmt.Errorf("the NATS server does not accept connections: %s", log)
	}
	s.running = running
	return nil
}

// newServer waits for the processes that other tests are starting: until they execute their programs, they have the
// listener of the last run, and the server could not listen on its port.
func newServer(options *server.Options) (*server.Server, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return server.NewServer(options)
}

// Shutdown stops the server and blocks until it has stopped. Its data stays.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// Restart stops the server if it runs, and starts it with the same data and port. Each configure changes the options first.
func (s *Server) Restart(tb testing.TB, configure ...func(*server.Options)) {
	tb.Helper()
	s.Shutdown()
	for _, f := range configure {
		f(&s.options)
	}
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Connections returns the number of open client connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return 0
	}
	return s.running.NumClients()
}

// LimitStorage limits the bytes that the streams of the default account may have together. -1 removes the limit.
func (s *Server) LimitStorage(tb testing.TB, limit int64) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.running.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{
		"": {MaxMemory: -1, MaxStore: limit, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1},
	})
	if err != nil {
		tb.Fatal(err)
	}
}
