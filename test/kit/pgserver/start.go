package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const (
	superuser    = "postgres"
	forceTimeout = 10 * time.Second
)

// Start makes a data directory, starts a server on it and returns when that
// accepts connections. ctx bounds the start, not the server's life: the
// caller must Stop it.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	install, err := find(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cred, err := serverUser()
	if err != nil {
		return nil, err
	}
	s := &Server{install: install, cred: cred, log: serverproc.NewTail(cfg.log)}
	if s.port, err = serverproc.ReservePort(); err != nil {
		return nil, err
	}
	if s.dir, err = serverproc.MakeDir(scratchParent(), "outbox-cdc-pg-"); err != nil {
		s.port.Close()
		return nil, fmt.Errorf("create the server's directory: %w", err)
	}
	if err := s.boot(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

func find(ctx context.Context, cfg Config) (Install, error) {
	if cfg.BinDir == "" {
		return Find(ctx, cfg.Major, cfg.Progress)
	}
	i, err := Inspect(ctx, cfg.BinDir)
	if err != nil {
		return Install{}, fmt.Errorf("look for Postgres in %s: %w", cfg.BinDir, err)
	}
	return i, nil
}

func (s *Server) boot(ctx context.Context, cfg Config) error {
	if err := giveTo(s.cred, s.dir.Path()); err != nil {
		return err
	}
	makeData := s.initdb
	if cfg.Data != nil {
		makeData = func(context.Context) error { return s.copyData(cfg.Data) }
	}
	if err := makeData(ctx); err != nil {
		return err
	}
	if err := s.configure(cfg.Settings); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return s.run(ctx)
}

// command is a program of the install, run as the server's user. Nothing of
// our environment reaches it: the PG* variables of an operator are not about
// this server.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.install.program(name), args...) //nolint:gosec,noctx // Start's ctx must not end the server
	cmd.Dir = s.dir.Path()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = procAttr(s.cred)
	return cmd
}

func (s *Server) initdb(ctx context.Context) error {
	err := s.dir.Run(ctx, s.command("initdb", "--pgdata", s.DataDir(), "--username", superuser,
		"--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"))
	if err != nil {
		return fmt.Errorf("run initdb: %w\n%s", err, s.log)
	}
	return nil
}

// copyData has fill make the data directory and gives it to the server's user.
func (s *Server) copyData(fill func(dir string) error) error {
	err := fill(s.DataDir())
	if err == nil {
		err = filepath.WalkDir(s.DataDir(), func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, giveTo(s.cred, path))
		})
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}

// configure appends our settings and then the caller's to postgresql.conf,
// where ALTER SYSTEM can still override them.
func (s *Server) configure(settings map[string]string) error {
	var conf strings.Builder
	for _, set := range [][2]string{
		{"listen_addresses", "127.0.0.1"},
		{"port", strconv.Itoa(s.Port())},
		{"unix_socket_directories", s.socketDir()},
		{"wal_level", "logical"},
		{"max_wal_senders", "50"},
		{"max_replication_slots", "50"},
		{"max_connections", "200"},
		{"fsync", "off"}, // the data need not survive the machine
		{"full_page_writes", "off"},
		// Segments as files of the data directory: a killed server leaves none in /dev/shm.
		{"dynamic_shared_memory_type", "mmap"},
		{"log_line_prefix", "%m [%p] "},
	} {
		writeSetting(&conf, set[0], set[1])
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		writeSetting(&conf, name, settings[name])
	}
	f, err := os.OpenFile(filepath.Join(s.DataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(conf.String())
	return errors.Join(err, f.Close())
}

func writeSetting(conf *strings.Builder, name, value string) {
	fmt.Fprintf(conf, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
}

// run starts the postmaster and waits until it accepts connections.
func (s *Server) run(ctx context.Context) error {
	proc, err := s.dir.Start(s.command("postgres", "-D", s.DataDir()), syscall.SIGQUIT)
	if err != nil {
		return err
	}
	s.proc.Store(proc)
	if err := s.awaitReady(ctx, proc); err != nil {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
		defer cancel()
		return errors.Join(err, s.Kill(hard))
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context, proc *serverproc.Process) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.ready(proc.PID()) {
		select {
		case <-tick.C:
		case <-proc.Done():
			return fmt.Errorf("start postgres %s: it ended: %w\n%s", s.install, proc.Err(), s.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres %s to accept connections: %w\n%s", s.install, context.Cause(ctx), s.log)
		}
	}
	return nil
}

// ready reads postmaster.pid, whose first line is the postmaster's process id
// and whose eighth is its state (miscinit.h, LOCK_FILE_LINE_PM_STATUS).
func (s *Server) ready(pid int) bool {
	data, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(data), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Config says which server Start runs. Its zero value is a good one.
type Config struct {
	// BinDir is the directory of initdb and postgres. Empty: see the package
	// comment.
	BinDir string
	// Major is the wanted major version when BinDir is empty. Zero: any that
	// is installed, else the newest that can be fetched.
	Major int
	// Settings are configuration parameters, written to postgresql.conf after
	// ours; "fsync": "on" makes the data safe.
	Settings map[string]string
	// Data, if not nil, makes the data directory in place of initdb: it fills dir,
	// which does not exist yet, with a copy of another server's.
	Data func(dir string) error
	// log receives what the server and initdb write. Nil: only LogTail does.
	log io.Writer
	// Progress, if not nil, is called while programs are fetched.
	Progress func(Progress)
}

// A Progress says how far a fetch is.
type Progress struct {
	Bytes     int64 // received so far
	Total     int64 // to be received; 0 while unknown
	Unpacking bool  // everything has been received and is now unpacked and tried
}
