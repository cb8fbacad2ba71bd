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

// Start creates a data directory, starts a server on it and returns when the
// server accepts connections. ctx limits the start, not the life of the server.
// The caller must call Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	install, err := find(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cred, err := serverUser()
	if err != nil {
		return nil, err
	}
	s := &Server{install: install, cred: cred, locales: cfg.Locales, log: serverproc.NewTail(cfg.log)}
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
	switch {
	case cfg.Data != nil:
		makeData = func(context.Context) error { return s.copyData(cfg.Data) }
	case cfg.Upgrade != nil:
		makeData = func(ctx context.Context) error { return s.upgrade(ctx, cfg.Upgrade) }
	}
	if err := makeData(ctx); err != nil {
		return err
	}
	if err := s.configure(cfg.Settings); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return s.run(ctx)
}

// command returns a command that runs a program of the install as the server's
// user. The program does not inherit the environment, whose PG* variables are
// meant for other servers.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.install.program(name), args...) //nolint:gosec,noctx // Start's ctx must not end the server
	cmd.Dir = s.dir.Path()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	if s.locales != "" {
		cmd.Env = append(cmd.Env, "LOCPATH="+s.locales)
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = procAttr(s.cred)
	return cmd
}

func (s *Server) initdb(ctx context.Context) error {
	args := []string{"--pgdata", s.DataDir(), "--username", superuser, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"}
	if s.install.Major >= 18 {
		args = append(args, "--no-data-checksums") // as before 18, so that every version can be upgraded
	}
	err := s.dir.Run(ctx, s.command("initdb", args...))
	if err != nil {
		return fmt.Errorf("run initdb: %w\n%s", err, s.log)
	}
	return nil
}

// copyData creates the data directory with fill and makes the server's user its owner.
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

// configure appends the settings of this package and then those of the caller
// to postgresql.conf. ALTER SYSTEM can still override them.
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
		{"fsync", "off"}, // the data need not survive a crash of the machine
		{"full_page_writes", "off"},
		// The segments are files in the data directory, so that a killed server leaves none in /dev/shm.
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

// ready reports whether the postmaster pid accepts connections. The first line
// of postmaster.pid is the postmaster's process id, the eighth its state
// (miscinit.h, LOCK_FILE_LINE_PM_STATUS).
func (s *Server) ready(pid int) bool {
	data, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(data), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Config configures the server that Start runs. The zero value is a usable configuration.
type Config struct {
	// BinDir is the directory of initdb and postgres. If it is empty, Start
	// looks for them as the package comment describes.
	BinDir string
	// Major is the major version that Start looks for if BinDir is empty. Zero
	// means any installed version, or the newest that Fetch downloads.
	Major int
	// Settings are configuration parameters. Start writes them to
	// postgresql.conf after its own. "fsync": "on" turns durability on.
	Settings map[string]string
	// If Data is not nil, Start calls it instead of initdb. Data creates dir
	// as a copy of another server's data directory.
	Data func(dir string) error
	// If Upgrade is not nil, Start shuts that server down, and pg_upgrade gives the new server its data. Both
	// installs must be complete: see [Install.Upgrades].
	Upgrade *Server
	// Locales is a directory of locales that the server can use in addition to "C", as glibc's LOCPATH. Empty: none
	// but those of the machine.
	Locales string
	// log receives the output of the server and of initdb. LogTail returns the
	// end of that output even if log is nil.
	log io.Writer
	// If Progress is not nil, Fetch calls it during a download.
	Progress func(Progress)
}

// A Progress is the progress of a download.
type Progress struct {
	Bytes     int64 // received so far
	Total     int64 // size of the archive; 0 if unknown
	Unpacking bool  // the download is complete; the fetcher unpacks and tests the programs
}
