package measure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"
)

// A Relay is the program outbox-cdc.
type Relay struct {
	Path string // of the program
	// Settings has further configuration by dotted key, such as "sink.kafka.compression". Slot, publication
	// and topics come from the target.
	Settings map[string]any
	Environ  []string // nil: that of this process
	Label    string   // its name; empty: "outbox-cdc"
}

var _ Contender = Relay{}

// Name returns the label.
func (r Relay) Name() string { return cmp.Or(r.Label, "outbox-cdc") }

// Produces returns true.
func (r Relay) Produces() bool { return true }

// Start runs outbox-cdc run with a configuration file in t's directory.
func (r Relay) Start(_ context.Context, t Target) (*Process, error) {
	file, err := t.configure(r.Settings)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.Path, "run", "--config", file) //nolint:gosec,noctx // the caller's choice; Stop ends it
	cmd.Env = r.Environ
	return t.Spawn(cmd)
}

// configure writes a configuration file for the relay and returns its path.
func (t Target) configure(more map[string]any) (string, error) {
	settings := make(map[string]any)
	if t.DSN != "" {
		settings["source.dsn"] = t.DSN
	}
	maps.Copy(settings, more)
	maps.Copy(settings, map[string]any{
		"name":               t.ClientID,
		"source.publication": t.Publication, "source.slot": t.Slot,
		"source.create": "none", "source.wait_for_slot": false,
		"outbox.tables": []string{pgx.Identifier{t.Schema, t.Table}.Sanitize()},
	})
	maps.Copy(settings, t.Settings)
	if _, stores := t.Settings["position_topic"]; !stores {
		settings["position.file"] = filepath.Join(t.Dir(), "position")
	}
	text, err := yaml.Marshal(sections(settings))
	if err != nil {
		return "", fmt.Errorf("write the relay's configuration: %w", err)
	}
	file := filepath.Join(t.Dir(), "outbox-cdc.yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// sections converts dotted keys to nested maps.
func sections(settings map[string]any) map[string]any {
	root := make(map[string]any)
	for path, value := range settings {
		names := strings.Split(path, ".")
		at := root
		for _, name := range names[:len(names)-1] {
			below, ok := at[name].(map[string]any)
			if !ok {
				below = make(map[string]any)
				at[name] = below
			}
			at = below
		}
		at[names[len(names)-1]] = value
	}
	return root
}
