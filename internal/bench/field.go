package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// An entrant is a program that takes part, whatever the codec.
type entrant struct {
	name     string
	produces bool
	with     func(compression string) measure.Contender
}

// A field is who takes part: the floor first.
type field struct {
	entrants []entrant
	relays   []program
	noFloor  string // why pg_recvlogical does not; empty: it does, or nobody asked
}

// newField finds everybody. scratch is a directory for a build of the relay.
func newField(ctx context.Context, s *settings, on *site, scratch string) (*field, error) {
	f := &field{}
	if err := f.addFloor(s, on); err != nil {
		return nil, err
	}
	if err := f.addRelays(ctx, s, on, scratch); err != nil {
		return nil, err
	}
	if s.debezium {
		install, err := debezium.Find(ctx)
		if err != nil {
			return nil, err
		}
		f.entrants = append(f.entrants,
			entrant{debezium.DefaultName, true, install.Default},
			entrant{debezium.TunedName, true, install.Tuned})
	}
	return f, f.choose(s.only)
}

// choose leaves those that only names; all if it names nobody.
func (f *field) choose(only []string) error {
	if only == nil {
		return nil
	}
	var some []entrant
	for _, name := range only {
		i := slices.IndexFunc(f.entrants, func(e entrant) bool { return e.name == name })
		if i < 0 {
			return fmt.Errorf("nobody called %s takes part", name)
		}
		some = append(some, f.entrants[i])
	}
	f.entrants = some
	return nil
}

// addFloor adds pg_recvlogical. It is there to compare with: if there is none, that is an error only where a
// gate compares, or the command line names it.
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
		err = errors.New("there is no pg_recvlogical on this machine: it is in the distribution's package of the Postgres client or server; --pg-recvlogical says where it is")
	}
	switch {
	case err == nil:
		f.entrants = append(f.entrants, entrant{floorName, false, func(string) measure.Contender { return floor }})
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
		f.entrants = append(f.entrants, entrant{p.label, true, func(compression string) measure.Contender {
			settings := maps.Clone(on.relay)
			settings["sink.kafka.compression"] = compression
			return measure.Relay{Path: path, Label: p.label, Settings: settings, Environ: on.environ}
		}})
	}
	return nil
}
