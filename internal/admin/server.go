package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Limits of a request. No response takes long, so slower clients are disconnected.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = time.Second
	headerBytes   = 16 << 10
)

// Config is what the Server shows in addition to the relay's state.
type Config struct {
	Name      string // of the relay: a label of its metrics
	Version   string // of this program
	Commit    string // of its source; may be empty
	Docs      string // address of the folder with its documentation
	Arguments string // of the commands in instructions, for its configuration: -c relay.yaml; may be empty

	Source, Publication, Slot string   // of the relay; Source is an address without user and password
	Broker                    string   // kind of broker, such as Kafka
	Brokers                   []string // its addresses, without credentials

	// Hosts are host names under which the Server responds, in addition to localhost and IP addresses.
	Hosts []string

	// Configuration is the effective configuration as text, with secrets masked. Empty: it is not shown.
	Configuration string
}

// A Server is an HTTP server for one relay. Call Observe before the relay is created, Listen before Run, and Run once.
type Server struct {
	cfg      Config
	log      *slog.Logger
	began    time.Time
	page     *page
	registry *prometheus.Registry
	answered *latency // of produce requests
	delivery *latency // of transactions, from their commit
	last     atomic.Pointer[sample]
	asked    chan chan struct{} // for a sample now; the channel is closed when it is taken
	history  history
	listener net.Listener
}

// New returns a Server.
func New(cfg Config, log *slog.Logger) *Server {
	s := &Server{
		cfg: cfg, log: log, began: time.Now(), page: newPage(), asked: make(chan chan struct{}),
		answered: newLatency(ackSeconds()), delivery: newLatency(commitToAckSeconds()),
	}
	s.registry = newRegistry(s)
	return s
}

// Observe makes the relay that is created from cfg report its latencies to s.
func (s *Server) Observe(cfg *relay.Config) {
	cfg.Delivered = s.delivery.observe
	cfg.Answered = s.answered.observe
}

// Listen opens the port. For port 0 the system chooses one; Addr returns it.
func (s *Server) Listen(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the admin server: %w", err)
	}
	s.listener = l
	return nil
}

// Addr returns the address of the Server, as host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves requests, and samples the relay through stat, until ctx ends. It returns earlier only if the listener fails.
func (s *Server) Run(ctx context.Context, stat func() relay.Stat) error {
	s.takeSample(stat)
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go s.watch(looking, stat) // it may hang in stat; /livez then reports that the relay is stuck
	limited := connections{log: s.log, open: make(map[net.Conn]connection)}
	server := &http.Server{
		Handler:           s.handler(),
		ConnState:         limited.changed,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the admin page: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		_ = server.Close() // connections that are still open have had stopTimeout
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin page: %w", err)
	}
	return nil
}

// freshTimeout limits how long a request waits for a sample: the relay may be stuck.
const freshTimeout = 200 * time.Millisecond

// askFresh has watch take a sample now: an operator who asks after a command wants to see what it has done.
func (s *Server) askFresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	done := make(chan struct{})
	select {
	case s.asked <- done:
		select {
		case <-done:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// watch takes a sample every interval, and whenever it is asked to.
func (s *Server) watch(ctx context.Context, stat func() relay.Stat) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.takeSample(stat)
		case done := <-s.asked:
			s.refresh(stat)
			close(done)
		case <-ctx.Done():
			return
		}
	}
}
