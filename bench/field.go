package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/bench"
)

// An entrant is a program that takes part, whatever the codec.
type entrant struct {
	name     string
	produces bool
	with     func(compression string) bench.Contender
}

// field returns who takes part: the floor first. scratch is a directory for a
// build of the relay.
func field(ctx context.Context, s *settings, scratch string) ([]entrant, error) {
	all, err := floor(s)
	if err != nil {
		return nil, err
	}
	relays, err := relays(ctx, s, scratch)
	if err != nil {
		return nil, err
	}
	all = append(all, relays...)
	if s.debezium {
		install, err := debezium.Find(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all,
			entrant{debezium.DefaultName, true, install.Default},
			entrant{debezium.TunedName, true, install.Tuned})
	}
	return chosen(all, s.only)
}

// chosen returns those of all that only names; all if it names nobody.
func chosen(all []entrant, only []string) ([]entrant, error) {
	if only == nil {
		return all, nil
	}
	var some []entrant
	for _, name := range only {
		i := slices.IndexFunc(all, func(e entrant) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("nobody called %s takes part", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

func floor(s *settings) ([]entrant, error) {
	if s.only != nil && !slices.Contains(s.only, floorName) {
		return nil, nil
	}
	path := s.pgRecvlogical
	if path == "" {
		path = bench.FindPgRecvlogical()
	}
	if path == "" {
		return nil, errors.New("there is no pg_recvlogical on this machine: it is in the distribution's package of the Postgres client or server; --pg-recvlogical says where it is")
	}
	return []entrant{{floorName, false, func(string) bench.Contender { return bench.PgRecvlogical{Path: path} }}}, nil
}

func relays(ctx context.Context, s *settings, scratch string) ([]entrant, error) {
	programs := s.relays
	if programs == nil {
		path, err := build(ctx, scratch)
		if err != nil {
			return nil, err
		}
		programs = []program{{relayName, path}}
	}
	var all []entrant
	for _, p := range programs {
		path, err := exec.LookPath(p.path)
		if err != nil {
			return nil, err
		}
		all = append(all, entrant{p.label, true, func(compression string) bench.Contender {
			return bench.Relay{
				Path: path, Label: p.label,
				Settings: map[string]any{"sink.kafka.compression": compression},
			}
		}})
	}
	return all, nil
}

// build builds the relay like make build does, and returns its path in dir.
func build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's root: %w", err)
	}
	path := filepath.Join(dir, relayName)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/outbox-cdc") //nolint:gosec // a path of ours
	cmd.Dir = string(root[:max(0, len(root)-1)])
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return path, nil
}
