package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// Settings are the flags of one command that set configuration keys.
type Settings struct {
	File  string               // of --config; empty: not given
	short map[string]*[]string // by flag
	set   []string
}

// Sink stands for the flags of every kind of broker in the names of [ConfigFlags].
const Sink = "sink"

// ConfigFlags adds the flags -c and --set to cmd, and those of [config.Flags] with the given names.
func ConfigFlags(cmd *cobra.Command, names ...string) *Settings {
	s := &Settings{short: make(map[string]*[]string)}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&s.File, "config", "c", "", "configuration `file` (YAML)")
	for _, f := range config.Flags() {
		if slices.Contains(names, f.Name) || strings.HasPrefix(f.Key, "sink.") && slices.Contains(names, Sink) {
			s.short[f.Name] = flags.StringArray(f.Name, nil, f.Usage)
		}
	}
	flags.StringArrayVar(&s.set, "set", nil, "set a configuration `key=value`, such as log.level=debug; may be repeated; not for secrets")
	return s
}

// Load merges the file, the environment, the flags and more; later sources override earlier ones.
func (s *Settings) Load(environ []string, more ...config.Setting) (*config.Config, error) {
	src := config.Sources{File: s.File, Environ: environ}
	for _, f := range config.Flags() {
		values := s.short[f.Name]
		if values == nil || len(*values) == 0 {
			continue
		}
		text := (*values)[len(*values)-1]
		if f.List {
			text = strings.Join(*values, ",")
		}
		src.Flags = append(src.Flags, config.Setting{Key: f.Key, Value: text, Flag: "--" + f.Name})
	}
	for _, text := range s.set {
		key, value, _ := strings.Cut(text, "=")
		src.Flags = append(src.Flags, config.Setting{Key: key, Value: value, Flag: "--set " + key})
	}
	src.Flags = append(src.Flags, more...)
	return config.Load(src)
}
