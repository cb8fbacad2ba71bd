package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// An entrant is a program that is measured, with any codec.
type entrant struct {
	name     string
	produces bool
	reads    bool // the slot
	with     func(compression string) measure.Contender
}

// A field has all programs that are measured, pg_recvlogical (the floor) first.
type field struct {
	entrants []entrant
	relays   []program
	noFloor  string // why pg_recvlogical is missing; empty: it is not, or not wanted
}

// newField finds all programs. scratch is a directory for a build of the relay.
func newField(ctx context.Context, s *settings, on *site, scratch string) (*field, error) {
	f := &field{}
	if err := f.addFloor(s, on); err != nil {
		return nil, err
	}
	if err := f.addRelays(ctx, s, on, scratch); err != nil {
		return nil, err
	}
	if err := f.addLibrary(on); err != nil {
		return nil, err
	}
	if s.debezium {
		install, err := debezium.Find(ctx)
		if err != nil {
			return nil, err
		}
		install.Brokers = on.kafka()
		f.entrants = append(f.entrants,
			entrant{debezium.DefaultName, true, true, install.Default},
			entrant{debezium.TunedName, true, true, install.Tuned})
	}
	return f, f.choose(s.only)
}

// choose keeps the programs in only; if only is empty, all of them.
func (f *field) choose(only []string) error {
	if only == nil {
		return nil
	}
	var some []entrant
	for _, name := range only {
		i := slices.IndexFunc(f.entrants, func(e entrant) bool { return e.name == name })
		if i < 0 {
			return fmt.Errorf("there is no contender %s", name)
		}
		some = append(some, f.entrants[i])
	}
	f.entrants = some
	return nil
}

// addFloor adds pg_recvlogical. If it is not installed, addFloor returns an error only if a gate compares with
// it or the command line names it.
func (f *field) addFloor(s *settings, on *site) error {
	named := slices.Contains(s.only, floorName)
	if s.only != nil && !named {
		return nil
	}
	floor := on.floor
	if floor.Path = s.recvlogical; floor.Path == "" {
		floor.Path = measure.FindPgRecvlogical()
	}
	_, err := exec.LookPath(floor.Path)
	if floor.Path == "" {
		err = errors.New("pg_recvlogical is not installed: install your distribution's package of the Postgres client or server, or set its path with --pg-recvlogical")
	}
	switch {
	case err == nil:
		f.entrants = append(f.entrants, entrant{floorName, false, true, func(string) measure.Contender { return floor }})
	case named || s.gate != "":
		return err
	default:
		f.noFloor = err.Error()
	}
	return nil
}

func (f *field) addRelays(ctx context.Context, s *settings, on *site, scratch string) error {
	f.relays = s.relays
	if f.relays == nil {
		path, err := findRelay(ctx, scratch)
		if err != nil {
			return err
		}
		f.relays = []program{{relayName, path}}
	}
	for i, p := range f.relays {
		path, err := exec.LookPath(p.path)
		if err != nil {
			return err
		}
		f.relays[i].path = path
		f.entrants = append(f.entrants, entrant{p.label, true, true, func(compression string) measure.Contender {
			return measure.Relay{Path: path, Label: p.label, Settings: on.settings(compression), Environ: on.environ}
		}})
	}
	return nil
}

// addLibrary adds a client of the broker's library, which is this program.
func (f *field) addLibrary(on *site) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.entrants = append(f.entrants, entrant{measure.LibraryName, true, false, func(compression string) measure.Contender {
		return measure.Library{Settings: on.settings(compression), Command: func(dir string) *exec.Cmd {
			cmd := exec.Command(self, publishName, dir) //nolint:gosec,noctx // ourselves; Stop ends it
			cmd.Args[0], cmd.Env = programName, on.environ
			return cmd
		}}
	}})
	return nil
}
