package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const (
	defaultHeapMB     = 512
	defaultPartitions = 4 // of a topic that is created without a number of partitions
)

// Config configures the broker of Launch and Start. The zero value is usable.
type Config struct {
	// Properties are entries of server.properties. They override the defaults of
	// this package: the broker does not create topics automatically, and a topic
	// has 4 partitions.
	Properties map[string]string
	// HeapMB limits the JVM's heap. Zero means 512.
	HeapMB int
	// JVM are options of java. Nil means options for a fast start and a short run:
	// the serial garbage collector and only the first compiler tier. Measurements
	// should use ScriptOptions.
	JVM []string
	// Users maps user names to passwords. If it is not empty, the broker has a
	// SASL_PLAINTEXT listener that accepts the users with PLAIN, SCRAM-SHA-256 and
	// SCRAM-SHA-512: see Server.SASLAddr.
	Users map[string]string
	// TLS adds a listener with TLS: see Server.TLSAddr. If Users is set, it is a
	// SASL_SSL listener. Otherwise it requires no authentication.
	TLS bool
	// Proxies are proxies in front of the broker. For each one the broker has a
	// plaintext listener, which is the proxy's target and advertises the proxy's
	// address. The methods of Cluster do not connect through the proxies.
	Proxies []*faultproxy.Proxy
	// If Joins is not nil, the broker joins the cluster of that broker and has no
	// controller of its own.
	Joins *Server
	// Log, if not nil, receives the broker's log messages of level WARN and above.
	Log io.Writer
}

// A Server is a real broker with its data. The KRaft controller runs in the same
// JVM, unless the broker joins another. The broker runs from Launch or Restart
// until Shutdown, Kill or Stop. The methods are safe for concurrent use, even while
// another goroutine waits for the broker to exit.
type Server struct {
	*Cluster // over the plaintext listener

	vm        jvm
	options   []string // of java
	dir       *serverproc.Dir
	clusterID string
	listeners []listener
	tls       *certificates // nil without Config.TLS
	log       *serverproc.Tail

	proc    atomic.Pointer[serverproc.Process] // the last broker
	members atomic.Int32                       // number of brokers that have joined this one

	mu      sync.Mutex // held by Restart and Stop
	removed bool       // Stop has removed the directory
}

// Launch starts a broker and returns when it serves requests. ctx limits only the
// start. The broker runs until the caller calls Stop. Tests call Start instead.
func Launch(ctx context.Context, cfg Config) (*Server, error) {
	vm, err := findJVM(ctx)
	if err != nil {
		return nil, err
	}
	return launch(ctx, vm, cfg)
}

func launch(ctx context.Context, vm jvm, cfg Config) (*Server, error) {
	s, err := prepare(vm, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.boot(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// prepare returns a broker with a directory and ports, which was not started.
func prepare(vm jvm, cfg Config) (*Server, error) {
	dir, err := serverproc.MakeDir("", "outbox-cdc-kafka-")
	if err != nil {
		return nil, fmt.Errorf("create the broker's directory: %w", err)
	}
	s := &Server{vm: vm, options: cfg.options(), dir: dir, log: serverproc.NewTail(cfg.Log), clusterID: newClusterID()}
	if err := s.reservePorts(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve the broker's ports: %w", err), s.discard())
	}
	return s, nil
}

func (s *Server) boot(ctx context.Context, cfg Config) error {
	if err := s.configure(cfg); err != nil {
		return fmt.Errorf("configure the broker: %w", err)
	}
	if err := s.format(ctx, cfg.Users); err != nil {
		return err
	}
	return s.run(ctx)
}

func (cfg Config) options() []string {
	options := []string{fmt.Sprintf("-Xmx%dm", cmp.Or(cfg.HeapMB, defaultHeapMB))}
	if cfg.JVM == nil {
		return append(options, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
	}
	return append(options, cfg.JVM...)
}

// command returns a command that runs a main class in the broker's directory.
func (s *Server) command(logLevel, class string, args ...string) *exec.Cmd {
	cmd := s.vm.command(s.options, logLevel, class, args...)
	cmd.Dir = s.dir.Path()
	cmd.Stdout, cmd.Stderr = s.log, s.log
	return cmd
}

// format writes the first records of the metadata log (KIP-631, KIP-900).
func (s *Server) format(ctx context.Context, users map[string]string) error {
	args := []string{"format", "--config", s.properties(), "--cluster-id", s.clusterID}
	for _, name := range sortedKeys(users) {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, name, users[name]))
		}
	}
	if err := s.dir.Run(ctx, s.command("error", "kafka.tools.StorageTool", args...)); err != nil {
		return fmt.Errorf("format the broker's storage: %w\n%s", err, s.log)
	}
	return nil
}

func (s *Server) properties() string { return filepath.Join(s.dir.Path(), "server.properties") }

// run starts the broker and waits until it serves requests.
func (s *Server) run(ctx context.Context) error {
	proc, err := s.dir.Start(s.command("warn", "kafka.Kafka", s.properties()), syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.proc.Store(proc)
	if err := s.awaitReady(ctx, proc); err != nil {
		_ = proc.Signal(syscall.SIGKILL)
		<-proc.Done()
		return err
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context, proc *serverproc.Process) error {
	client, err := kgo.NewClient(s.clientOpts(kgo.RetryTimeout(time.Second))...)
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for client.Ping(ctx) != nil {
		select {
		case <-tick.C:
		case <-proc.Done():
			return fmt.Errorf("start the broker: it ended: %w\n%s", proc.Err(), s.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for the broker: %w\n%s", context.Cause(ctx), s.log)
		}
	}
	return nil
}

// Running reports whether the broker's process is alive.
func (s *Server) Running() bool { return s.proc.Load().Running() }

// logTail returns the last few kilobytes of the broker's output.
func (s *Server) logTail() string { return s.log.String() }

// Shutdown is a controlled shutdown (SIGTERM). It blocks until the broker has exited or
// ctx is done. The data stays.
func (s *Server) Shutdown(ctx context.Context) error { return s.proc.Load().End(ctx, syscall.SIGTERM) }

// Kill kills the broker (SIGKILL) and blocks until it has exited or ctx is done. The
// data stays.
func (s *Server) Kill(ctx context.Context) error { return s.proc.Load().End(ctx, syscall.SIGKILL) }

// Pause stops the broker's process (SIGSTOP). Connections remain open and the kernel
// accepts data, but the broker does not respond.
func (s *Server) Pause() error { return s.proc.Load().Pause() }

// Resume undoes Pause.
func (s *Server) Resume() error { return s.proc.Load().Resume() }

// Restart starts the broker again with the same data and ports. If the broker runs,
// Restart calls Shutdown first. It returns when the broker serves requests or ctx is
// done.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return errors.New("the broker has been stopped for good")
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// Stop kills the broker and removes its data. The broker cannot be restarted after it.
// A second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	s.removed = true
	var err error
	if proc := s.proc.Load(); proc != nil {
		err = proc.Signal(syscall.SIGKILL)
		<-proc.Done()
	}
	return errors.Join(err, s.discard())
}

func (s *Server) discard() error {
	for _, l := range s.listeners {
		l.port.Close()
	}
	return s.dir.Remove()
}
