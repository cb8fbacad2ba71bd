package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// RelayCommand is the first argument of this program if it is a relay of a demo with Options.Chaos. It then behaves like
// outbox-cdc run, with a configuration in its environment.
const RelayCommand = "relay"

const (
	programName = "outbox-cdc-demo"
	envPrefix   = "OUTBOX_CDC_" // of configuration keys

	// chaosLease is source.lease of the relays: Postgres releases the slot of a frozen relay after it.
	chaosLease = "3s"

	askInterval = 100 * time.Millisecond // between two requests for the status of a relay
	endTimeout  = 30 * time.Second       // for the relays to stop
)

// A crew is a relay and its standby, which are processes of this program.
type crew struct {
	demo    *demo
	seats   []*seat
	striker *striker
	page    *chaosPage
}

// A seat is one of the relays. A process that the demo has killed is replaced.
type seat struct {
	name   string
	dir    *serverproc.Dir  // of its process, which ends with this one
	port   *serverproc.Port // of its admin server
	client *admin.Client
	env    []string

	confirmed atomic.Uint64 // the last known position

	mu      sync.Mutex
	process *seatProcess // nil: none has started
	status  *admin.Status
}

type seatProcess struct {
	*serverproc.Process

	log    *serverproc.Tail
	killed atomic.Bool // by the demo
}

// openCrew prepares the processes, and prints the address of the demo's page.
func (d *demo) openCrew(ctx context.Context) (*crew, error) {
	c := &crew{demo: d}
	for _, name := range []string{"relay 1", "relay 2"} {
		s, err := d.newSeat(name)
		if err != nil {
			return nil, err
		}
		c.seats = append(c.seats, s)
	}
	c.striker = newStriker(d, c)
	c.page = newChaosPage(d, c)
	err := d.screen.step("live page", func(func(string)) (string, error) {
		if err := c.page.listen(ctx); err != nil {
			return "", err
		}
		return c.page.url(), nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (d *demo) newSeat(name string) (*seat, error) {
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, err
	}
	d.rig.later(closing(port.Close))
	dir, err := serverproc.MakeDir("", "outbox-cdc-relay-")
	if err != nil {
		return nil, err
	}
	d.rig.later(func(context.Context) error { return dir.Remove() })
	client, err := admin.NewClient(port.Addr())
	if err != nil {
		return nil, err
	}
	settings := d.rig.relaySettings()
	settings["ADMIN_LISTEN"] = port.Addr()
	return &seat{name: name, dir: dir, port: port, client: client, env: childEnv(os.Environ(), settings)}, nil
}

// childEnv returns environ with the given configuration in place of its own.
func childEnv(environ []string, settings map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, envPrefix) })
	for key, value := range settings {
		env = append(env, envPrefix+key+"="+value)
	}
	slices.Sort(env)
	return env
}

// relaySettings returns the configuration of a relay in a process of its own: the names of variables without their prefix.
func (r *rig) relaySettings() map[string]string {
	return map[string]string{
		"SOURCE_DSN": r.relayDSN, "SOURCE_PUBLICATION": r.names.object, "SOURCE_SLOT": r.names.object,
		"SOURCE_CREATE": "none", "SOURCE_LEASE": chaosLease,
		"OUTBOX_TABLES": r.names.table(), "OUTBOX_TOPIC": r.broker.topic,
		"SINK_KAFKA_BROKERS": strings.Join(r.broker.addrs, ","), "SINK_KAFKA_CLIENT_ID": relayClientID,
		"POSITION_TOPIC": r.broker.positions, "DRAIN_TIMEOUT": "10s", "LOG_FORMAT": "text",
	}
}

// run starts the relays, and stops them when ctx ends. It returns earlier if one ends that the demo has not killed.
func (c *crew) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range c.seats {
		g.Go(func() error { return s.run(ctx) })
		g.Go(func() error {
			s.watch(ctx)
			return nil
		})
	}
	return g.Wait()
}

// run keeps a process running until ctx ends.
func (s *seat) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p, err := s.start()
		if err != nil {
			return err
		}
		select {
		case <-p.Done():
			if !p.killed.Load() {
				return fmt.Errorf("%s ended by itself: %w\n%s", s.name, p.Err(), p.log)
			}
		case <-ctx.Done():
			return s.stop(ctx, p)
		}
	}
	return nil
}

// start starts the next process.
func (s *seat) start() (*seatProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	log := serverproc.NewTail(nil)
	cmd := &exec.Cmd{Path: program, Args: []string{programName, RelayCommand}, Env: s.env, Dir: s.dir.Path(), Stdout: log, Stderr: log}
	process, err := s.dir.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	p := &seatProcess{Process: process, log: log}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.status = p, nil
	return p, nil
}

// stop stops p in order, and kills it if that takes too long.
func (s *seat) stop(ctx context.Context, p *seatProcess) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := p.End(ctx, syscall.SIGTERM)
	if err != nil {
		err = errors.Join(err, p.Signal(syscall.SIGKILL))
		<-p.Done()
	} else if !p.killed.Load() && !terminated(p.Err()) {
		err = p.Err()
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w\n%s", s.name, err, p.log)
	}
	return nil
}

// terminated reports whether a process ended by SIGTERM itself: it was too young to handle the signal.
func terminated(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// watch asks for the status until ctx ends.
func (s *seat) watch(ctx context.Context) {
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		asked := s.current()
		status, _, err := s.client.Status(ctx)
		if err != nil {
			status = nil // it starts, or is frozen
		}
		s.note(asked, status)
	}
}

// note records a status of p.
func (s *seat) note(p *seatProcess, status *admin.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p {
		return
	}
	s.status = status
	if status == nil {
		return
	}
	if lsn, err := pglogrepl.ParseLSN(status.Source.Confirmed); err == nil {
		s.confirmed.Store(uint64(lsn))
	}
}

func (s *seat) current() *seatProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// role returns the role of the current process; empty: it has none, or does not respond.
func (s *seat) role() relay.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == nil {
		return relay.NoRole
	}
	return relay.Role(s.status.Role)
}

// kill kills the current process, and returns when it has ended.
func (s *seat) kill() error {
	p := s.current()
	p.killed.Store(true)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// roles returns the relay that streams and the one that waits for the slot, or ok false if they are not so.
func (c *crew) roles() (active, standby *seat, ok bool) {
	for _, s := range c.seats {
		switch s.role() {
		case relay.Active:
			active = s
		case relay.Standby:
			standby = s
		case relay.NoRole:
		}
	}
	return active, standby, active != nil && standby != nil
}

func (c *crew) standing() (state string, confirmed pglogrepl.LSN) {
	state = string(relay.Waiting)
	for _, s := range c.seats {
		if s.role() == relay.Active {
			state = string(relay.Streaming)
		}
		confirmed = max(confirmed, pglogrepl.LSN(s.confirmed.Load()))
	}
	return state, confirmed
}

func (c *crew) serve(ctx context.Context) error { return c.page.serve(ctx) }
