package rabbittest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Config configures a server. The zero value is usable.
type Config struct {
	// Settings are entries of rabbitmq.conf. They override the defaults of this package.
	Settings map[string]string
	// Plugins are enabled in addition to rabbitmq_consistent_hash_exchange.
	Plugins []string
	// TLS adds a listener with TLS, for which a client certificate is optional: see Server.TLSAddr. With the plugin
	// rabbitmq_auth_mechanism_ssl, the user rabbittest logs in with the certificate of Server.TLSConfig.
	TLS bool
	// Log, if not nil, receives the server's log.
	Log io.Writer
}

// A Server is a RabbitMQ server with its data. It runs from Launch or Restart until Shutdown, Kill or Stop. The methods
// are safe for concurrent use.
type Server struct {
	install install
	node    string // its name in Erlang
	cookie  string // of Erlang
	dir     *serverproc.Dir
	ports   []*serverproc.Port // by portIndex
	tls     *certificates      // nil without Config.TLS
	log     *serverproc.Tail

	mapperPort string
	mapperDir  *serverproc.Dir     // nil if another server of a cluster has started the epmd
	mapper     *serverproc.Process // epmd, or nil

	proc   atomic.Pointer[serverproc.Process] // the last server
	vhosts atomic.Int32                       // number of virtual hosts that VHost has created
	killed atomic.Bool                        // Kill was called

	mu      sync.Mutex // held by Restart and Stop
	removed bool       // Stop has removed the directory
}

// The ports of a server, as indices of Server.ports.
const (
	portAMQP = iota
	portTLS
	portDistribution
	portMapper
	portCount
)

const syncTimeout = 10 * time.Second

// nodeName is the name of a server, unless it is one of a cluster: no others share an epmd.
const nodeName = "rabbit@localhost"

// Launch starts a server and returns when it accepts connections. ctx limits only the start. The server runs until the
// caller calls Stop. Tests call Start instead.
func Launch(ctx context.Context, cfg Config) (*Server, error) {
	return launch(ctx, cfg, &Server{node: nodeName, cookie: rand.Text()})
}

// launch starts s, of which the name, the cookie and, if it shares one, the port of the epmd are set.
func launch(ctx context.Context, cfg Config, s *Server) (*Server, error) {
	var err error
	if s.install, err = findInstall(); err != nil {
		return nil, err
	}
	s.log = serverproc.NewTail(cfg.Log)
	if err := s.prepare(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare RabbitMQ: %w", err), s.discard())
	}
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// prepare creates the directories, the ports, the files and, unless it shares one, the epmd of the server.
func (s *Server) prepare(cfg Config) error {
	var err error
	if s.dir, err = serverproc.MakeDir("", "outbox-cdc-rabbit-"); err != nil {
		return err
	}
	for range portCount {
		port, err := serverproc.ReservePort()
		if err != nil {
			return err
		}
		s.ports = append(s.ports, port)
	}
	if err := s.configure(cfg); err != nil {
		return err
	}
	if s.mapperPort != "" {
		return nil
	}
	s.mapperPort = s.number(portMapper)
	if s.mapperDir, err = serverproc.MakeDir("", "outbox-cdc-epmd-"); err != nil {
		return err
	}
	epmd := exec.Command(s.install.epmd, "-port", s.mapperPort, "-address", "127.0.0.1") //nolint:gosec,noctx // Erlang's own program; no context ends it
	epmd.Stdout, epmd.Stderr = s.log, s.log
	s.mapper, err = s.mapperDir.Start(epmd, syscall.SIGKILL)
	return err
}

func (s *Server) number(port int) string { return strconv.Itoa(s.ports[port].Number()) }

func (s *Server) path(name string) string { return filepath.Join(s.dir.Path(), name) }

// env returns the environment of the server and of rabbitmqctl.
func (s *Server) env() []string {
	return []string{
		"HOME=" + s.dir.Path(), // has the Erlang cookie
		"ERL_EPMD_PORT=" + s.mapperPort,
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + s.node,
		"RABBITMQ_BASE=" + s.dir.Path(),
		"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
		"RABBITMQ_CONFIG_FILE=" + s.path(confFile),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.path(pluginsFile),
		"RABBITMQ_MNESIA_BASE=" + s.path("data"),
		"RABBITMQ_LOG_BASE=" + s.path("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + s.path("pid"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + s.path("generated"),
		"RABBITMQ_DIST_PORT=" + s.number(portDistribution),
		"RABBITMQ_ALLOW_INPUT=1", // the script execs the server instead of waiting for it
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CTL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// run starts the server and waits until it accepts connections.
func (s *Server) run(ctx context.Context) error {
	cmd := s.install.command(s.env(), "rabbitmq-server")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir.Path(), s.log, s.log
	proc, err := s.dir.Start(cmd, syscall.SIGKILL)
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
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !s.ready() {
		select {
		case <-tick.C:
		case <-proc.Done():
			return fmt.Errorf("start RabbitMQ: it ended: %w\n%s", proc.Err(), s.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for RabbitMQ: %w\n%s", context.Cause(ctx), s.log)
		}
	}
	return nil
}

func (s *Server) ready() bool {
	conn, err := amqp.DialConfig(s.URL("/"), amqp.Config{Dial: amqp.DefaultDial(time.Second)})
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Addr returns host:port of the listener without TLS.
func (s *Server) Addr() string { return s.ports[portAMQP].Addr() }

// TLSAddr returns host:port of the listener with TLS, which the server has if Config.TLS is set.
func (s *Server) TLSAddr() string { return s.ports[portTLS].Addr() }

// URL returns the URL of a virtual host, without TLS, for the user guest, who is an administrator.
func (s *Server) URL(vhost string) string { return s.URLAs("guest", "guest", vhost) }

// URLAs returns the URL of a virtual host, without TLS, for a user.
func (s *Server) URLAs(user, password, vhost string) string {
	return fmt.Sprintf("amqp://%s:%s@%s/%s", url.PathEscape(user), url.PathEscape(password), s.Addr(), url.PathEscape(vhost))
}

// Ctl runs rabbitmqctl and returns its output.
func (s *Server) Ctl(ctx context.Context, args ...string) (string, error) {
	out, err := run(ctx, s.install.command(s.env(), "rabbitmqctl", append([]string{"--quiet"}, args...)...))
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w", args[0], err)
	}
	return out, nil
}

// eval evaluates an expression of Erlang on the server and returns its value as text. It is much faster than rabbitmqctl eval.
func (s *Server) eval(ctx context.Context, expression string) (string, error) {
	cmd := exec.Command(s.install.erlCall, "-address", s.ports[portDistribution].Addr(), "-c", s.cookie, "-r", "-e") //nolint:gosec,noctx // Erlang's own program; ctx ends it
	cmd.Stdin = strings.NewReader(expression + ".\n")
	out, err := run(ctx, cmd)
	if err != nil {
		return "", fmt.Errorf("evaluate %s: %w", expression, err)
	}
	value, ok := strings.CutPrefix(out, "{ok, ")
	if !ok {
		return "", fmt.Errorf("evaluate %s: %s", expression, out)
	}
	return strings.TrimSuffix(value, "}"), nil
}

// run runs a command until ctx ends, and returns its output.
func run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, &out, &errs)
	}
	return out.String(), nil
}

// Running reports whether the server's process is alive.
func (s *Server) Running() bool { return s.proc.Load().Running() }

// Shutdown stops the server in an orderly way (SIGTERM). It blocks until the server has exited or ctx is done. The data
// stays.
func (s *Server) Shutdown(ctx context.Context) error { return s.proc.Load().End(ctx, syscall.SIGTERM) }

// Kill kills the server (SIGKILL) and blocks until it has exited or ctx is done. The data stays.
//
// RabbitMQ confirms a declaration up to two seconds before it writes it to disk. The first Kill waits for that, so that the
// queues and bindings of a test survive.
func (s *Server) Kill(ctx context.Context) error {
	if s.killed.CompareAndSwap(false, true) {
		limited, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		if _, err := s.eval(limited, "ok = mnesia:sync_log()"); err != nil && limited.Err() == nil { // a paused server does not respond
			return err
		}
	}
	return s.proc.Load().End(ctx, syscall.SIGKILL)
}

// Pause stops the server's process (SIGSTOP). Connections remain open and the kernel accepts data, but the server does
// not respond.
func (s *Server) Pause() error { return s.proc.Load().Pause() }

// Resume undoes Pause.
func (s *Server) Resume() error { return s.proc.Load().Resume() }

// Restart starts the server again with the same data and ports. If the server runs, Restart calls Shutdown first. It
// returns when the server accepts connections or ctx is done.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return errors.New("RabbitMQ has been stopped for good")
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// Stop kills the server and removes its data. The server cannot be restarted after it. A second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	s.removed = true
	return s.discard()
}

func (s *Server) discard() error {
	var errs []error
	for _, proc := range []*serverproc.Process{s.proc.Load(), s.mapper} {
		if proc != nil {
			errs = append(errs, proc.Signal(syscall.SIGKILL))
			<-proc.Done()
		}
	}
	for _, port := range s.ports {
		port.Close()
	}
	for _, dir := range []*serverproc.Dir{s.dir, s.mapperDir} {
		if dir != nil {
			errs = append(errs, dir.Remove())
		}
	}
	return errors.Join(errs...)
}
