// Package preset has configurations for outbox tables of other libraries.
package preset

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

//go:embed *.yaml
var files embed.FS

const suffix = ".yaml"

// Names returns the names of the presets.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), suffix))
	}
	return out
}

// Config returns the configuration of a preset, as YAML. It has neither connection string nor brokers. Case does not
// matter in the name.
func Config(name string) ([]byte, error) {
	name = strings.ToLower(name)
	if reason := unsupported()[name]; reason != "" {
		return nil, fmt.Errorf("%s: %s", name, reason)
	}
	if !slices.Contains(Names(), name) {
		hint := ""
		if meant := config.Nearest(name, Names()); meant != "" {
			hint = "; did you mean " + meant + "?"
		}
		return nil, fmt.Errorf("no preset %q: there are %s%s", name, strings.Join(Names(), ", "), hint)
	}
	return files.ReadFile(name + suffix)
}

// unsupported returns why the tables of some libraries cannot be relayed.
func unsupported() map[string]string {
	return map[string]string{
		"masstransit": "its table OutboxMessage cannot be relayed: DestinationAddress is the address of a queue or exchange and no topic," +
			" MassTransit's delivery service makes the message from Body, Headers and Properties only when it sends, and EnqueueTime may delay it." +
			" Keep that service, or write events that other programs read to a table of their own (outbox-cdc migrate up)",
	}
}
