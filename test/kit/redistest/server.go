package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const program = "redis-server"

// Config configures a server. The zero value is usable: the server saves nothing to disk.
type Config struct {
	// Settings are directives of redis.conf. They override the defaults of this package.
	Settings map[string]string

	// Users maps the names of users to their ACL rules, such as ">password ~orders:* +@stream". The user default
	// stays as it is unless it is among them.
	Users map[string]string

	// TLS makes the server accept only connections with TLS and a client certificate of its own authority: see
	// Server.TLSConfig.
	TLS bool

	// ReplicaOf, if not nil, makes the server a replica.
	ReplicaOf *Server

	// Log, if not nil, receives the server's log.
	Log io.Writer
}

// A Server is a Redis server with its data. It runs from Launch or Restart until Shutdown, Kill or Stop. The methods
// are safe for concurrent use.
type Server struct {
	path      string // of the program
	dir       *serverproc.Dir
	port, bus *serverproc.Port // bus is nil unless the server is in a cluster
	authority *certtest.Authority
	client    certtest.Certificate
	log       *serverproc.Tail
	admin     *redis.Client
	args      []string

	proc atomic.Pointer[serverproc.Process]

	mu      sync.Mutex // held by Restart and Stop
	removed bool
}

// Launch starts a server and returns when it serves requests. ctx limits only the start. The caller must call Stop.
// Tests call Start instead.
func Launch(ctx context.Context, cfg Config) (*Server, error) { return launch(ctx, cfg, "") }

// launch starts a server, with the argument mode if it is not empty.
func launch(ctx context.Context, cfg Config, mode string) (*Server, error) {
	s, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if mode != "" {
		s.args = append(s.args, mode)
	}
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func prepare(cfg Config) (*Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	dir, err := serverproc.MakeDir("", "outbox-cdc-redis-")
	if err != nil {
		return nil, fmt.Errorf("create the server's directory: %w", err)
	}
	s := &Server{path: path, dir: dir, log: serverproc.NewTail(cfg.Log)}
	if err := s.configure(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("configure the server: %w", err), s.Stop())
	}
	options := &redis.Options{Addr: s.port.Addr(), MaxRetries: -1}
	if cfg.TLS {
		options.TLSConfig = s.TLSConfig()
	}
	s.admin = redis.NewClient(options)
	return s, nil
}

// configure writes redis.conf.
func (s *Server) configure(cfg Config) (err error) {
	if s.port, err = serverproc.ReservePort(); err != nil {
		return err
	}
	settings := map[string]string{
		"bind": "127.0.0.1", "port": fmt.Sprint(s.port.Number()), "dir": s.dir.Path(), "save": `""`, "daemonize": "no",
		"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0", "enable-debug-command": "yes",
	}
	if cfg.ReplicaOf != nil {
		settings["replicaof"] = fmt.Sprintf("127.0.0.1 %d", cfg.ReplicaOf.port.Number())
	}
	if cfg.TLS {
		if err := s.issue(settings); err != nil {
			return err
		}
	}
	maps.Copy(settings, cfg.Settings)
	if settings["cluster-enabled"] == "yes" {
		if s.bus, err = serverproc.ReservePort(); err != nil {
			return err
		}
		settings["cluster-port"] = fmt.Sprint(s.bus.Number())
	}
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s %s\n", name, settings[name])
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Users)) {
		fmt.Fprintf(&conf, "user %s on %s\n", name, cfg.Users[name])
	}
	s.args = []string{filepath.Join(s.dir.Path(), "redis.conf")}
	return os.WriteFile(s.args[0], []byte(conf.String()), 0o600)
}

// issue creates the certificates of the server and its clients, and adds the settings of TLS.
func (s *Server) issue(settings map[string]string) error {
	s.authority = certtest.New()
	until := time.Now().Add(24 * time.Hour)
	s.client = s.authority.Issue(until, "client")
	server := s.authority.Issue(until, "127.0.0.1", "localhost")
	for name, pem := range map[string][]byte{"ca.crt": s.authority.PEM(), "server.crt": server.Cert, "server.key": server.Key} {
		if err := os.WriteFile(filepath.Join(s.dir.Path(), name), pem, 0o600); err != nil {
			return err
		}
	}
	settings["tls-port"], settings["port"] = settings["port"], "0"
	settings["tls-ca-cert-file"], settings["tls-cert-file"], settings["tls-key-file"] = "ca.crt", "server.crt", "server.key"
	for _, file := range []string{"tls-ca-cert-file", "tls-cert-file", "tls-key-file"} {
		settings[file] = filepath.Join(s.dir.Path(), settings[file])
	}
	return nil
}

// TLSConfig returns a client configuration that trusts the server's certificate and has a client certificate.
// Config.TLS must be set.
func (s *Server) TLSConfig() *tls.Config {
	return &tls.Config{RootCAs: s.authority.Pool(), Certificates: []tls.Certificate{s.client.TLS}, MinVersion: tls.VersionTLS12}
}

// Authority returns the authority of the server's certificate. Config.TLS must be set.
func (s *Server) Authority() *certtest.Authority { return s.authority }

// run starts the server and waits until it serves requests.
func (s *Server) run(ctx context.Context) error {
	cmd := exec.Command(s.path, s.args...) //nolint:gosec,noctx // the server outlives ctx
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir.Path(), s.log, s.log
	proc, err := s.dir.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.proc.Store(proc)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.ready(ctx) {
		select {
		case <-tick.C:
		case <-proc.Done():
			return fmt.Errorf("start the server: it ended: %w\n%s", proc.Err(), s.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w\n%s", context.Cause(ctx), s.log)
		}
	}
	return nil
}

// ready reports whether the server responds and has loaded its data. A server that asks for a password is ready too.
func (s *Server) ready(ctx context.Context) bool {
	err := s.admin.Ping(ctx).Err()
	return err == nil || strings.HasPrefix(err.Error(), "NOAUTH") || strings.HasPrefix(err.Error(), "NOPERM")
}

// Addr returns 127.0.0.1:port.
func (s *Server) Addr() string { return s.port.Addr() }

// Admin returns a client that logs in as the user default without a password. It does not retry, and Stop closes it.
func (s *Server) Admin() *redis.Client { return s.admin }

// Running reports whether the server's process is alive.
func (s *Server) Running() bool { return s.proc.Load().Running() }

// Shutdown ends the server (SIGTERM), which saves what it is configured to save. It blocks until the server has exited or
// ctx is done.
func (s *Server) Shutdown(ctx context.Context) error { return s.proc.Load().End(ctx, syscall.SIGTERM) }

// Kill kills the server (SIGKILL) and blocks until it has exited or ctx is done. What it has written to disk stays.
func (s *Server) Kill(ctx context.Context) error { return s.proc.Load().End(ctx, syscall.SIGKILL) }

// Pause stops the server's process (SIGSTOP). Connections remain open, but the server does not respond.
func (s *Server) Pause() error { return s.proc.Load().Pause() }

// Resume undoes Pause.
func (s *Server) Resume() error { return s.proc.Load().Resume() }

// Restart starts the server again with the same directory and port. If the server runs, Restart calls Shutdown first. It
// returns when the server serves requests or ctx is done.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return errors.New("the server has been stopped for good")
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// Stop kills the server and removes its data. It cannot be restarted after that. A second Stop does nothing.
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
	if s.admin != nil {
		err = errors.Join(err, s.admin.Close())
	}
	for _, port := range []*serverproc.Port{s.port, s.bus} {
		if port != nil {
			port.Close()
		}
	}
	return errors.Join(err, s.dir.Remove())
}
