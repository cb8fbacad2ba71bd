package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A Server is a Postgres server with its data directory. It runs from Start or
// Restart until Shutdown, Immediate, Kill or Stop.
type Server struct {
	install Install
	dir     *serverproc.Dir
	port    *serverproc.Port
	cred    *credential // nil: the current user's
	locales string      // LOCPATH; empty: not set
	log     *serverproc.Tail

	proc atomic.Pointer[serverproc.Process] // the last postmaster

	mu      sync.Mutex // held by Restart and Stop
	removed bool       // Stop has removed the directory
}

// DSN returns the URL of a database for the superuser postgres, over TCP and
// without TLS.
func (s *Server) DSN(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Host: s.Addr(),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns the host and port the server listens on; a Restart keeps it.
func (s *Server) Addr() string { return s.port.Addr() }

// Port returns the TCP port.
func (s *Server) Port() int { return s.port.Number() }

// socketDir returns the directory of the Unix socket, which libpq and pgx accept as the host.
func (s *Server) socketDir() string { return s.dir.Path() }

// DataDir returns the data directory. It belongs to the server's user.
func (s *Server) DataDir() string { return filepath.Join(s.dir.Path(), "data") }

// Install returns the install whose programs the server runs.
func (s *Server) Install() Install { return s.install }

// LogTail returns the newest few kilobytes of the server's log.
func (s *Server) LogTail() string { return s.log.String() }

// PID returns the process id of the postmaster, or of the last one if none runs.
func (s *Server) PID() int { return s.proc.Load().PID() }

// Running reports whether the postmaster is alive.
func (s *Server) Running() bool { return s.proc.Load().Running() }

// WriteFile writes a file, such as pg_hba.conf or a TLS key, into the data
// directory. The server's user owns the file; its mode is 0600.
func (s *Server) WriteFile(name string, data []byte) error {
	path := filepath.Join(s.DataDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return giveTo(s.cred, path)
}

// Shutdown is a fast shutdown (SIGINT): Postgres terminates the sessions and
// writes a checkpoint. Shutdown blocks until the server has exited or ctx is
// done. Postgres waits until every WAL sender has sent all WAL, so a
// replication client that does not confirm its position delays Shutdown. The
// data stays.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.proc.Load().End(ctx, syscall.SIGINT)
}

// Immediate is an immediate shutdown (SIGQUIT) without a checkpoint: Postgres
// recovers at the next start, as after a crash. Immediate blocks until the
// server has exited or ctx is done. The data stays.
func (s *Server) Immediate(ctx context.Context) error {
	return s.proc.Load().End(ctx, syscall.SIGQUIT)
}

// Kill kills the postmaster and all its children at once (SIGKILL), like a
// machine that crashes. It blocks until they have exited or ctx is done. The
// data that Postgres had written stays.
func (s *Server) Kill(ctx context.Context) error {
	proc := s.proc.Load()
	if !proc.Running() {
		return nil
	}
	if err := proc.Pause(); err != nil { // the postmaster must not fork between childrenOf and kill
		return err
	}
	children, err := childrenOf(ctx, proc.PID())
	for _, pid := range children {
		err = errors.Join(err, kill(pid))
	}
	err = errors.Join(err, proc.End(ctx, syscall.SIGKILL))
	for _, pid := range children {
		err = errors.Join(err, waitGone(ctx, pid))
	}
	return err
}

// Restart starts the server again with the same data and the same port. If the
// server runs, Restart shuts it down first. It returns when the server accepts
// connections or ctx is done.
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

// Stop shuts the server down and removes its directory. If the shutdown fails,
// for example because ctx is done, it kills the server. Stop leaves no process
// and no file even if it returns an error. A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	s.removed = true
	err := s.Shutdown(ctx)
	if err != nil {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
		defer cancel()
		err = errors.Join(err, s.Kill(hard))
	}
	return errors.Join(err, s.discard())
}

// discard removes the server's shared memory and directory and releases its port.
func (s *Server) discard() error {
	removeSharedMemory(s.DataDir())
	s.port.Close()
	return s.dir.Remove()
}

// waitGone waits until a process has exited that is not a child of this process.
func waitGone(ctx context.Context, pid int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for alive(pid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d to end: %w", pid, context.Cause(ctx))
		}
	}
	return nil
}
