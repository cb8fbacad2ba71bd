package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// Settings are the flags of one command that set configuration keys.
type Settings struct{ flags *pflag.FlagSet }

// Sink stands for the flags of every kind of broker in the names of [ConfigFlags].
const Sink = "sink"

// ConfigFlags adds the flags -c and --set to cmd, and those of [config.Flags] with the given names.
func ConfigFlags(cmd *cobra.Command, names ...string) *Settings {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringP("config", "c", "", "configuration `file` (YAML)")
	for _, f := range config.Flags() {
		if slices.Contains(names, f.Name) || strings.HasPrefix(f.Key, "sink.") && slices.Contains(names, Sink) {
			flags.StringArray(f.Name, nil, f.Usage)
		}
	}
	flags.StringArray("set", nil, "set a configuration `key=value`, such as log.level=debug; may be repeated; not for secrets")
	return &Settings{flags}
}

// Load merges the file, the environment, the flags and more; later sources override earlier ones.
func (s *Settings) Load(environ []string, more ...config.Setting) (*config.Config, error) {
	src := sourcesIn(s.flags)
	src.Environ, src.Flags = environ, append(src.Flags, more...)
	return config.Load(src)
}

// sourcesIn returns what flags say of the configuration. They may lack any flag of [ConfigFlags].
func sourcesIn(flags *pflag.FlagSet) config.Sources {
	var src config.Sources
	src.File, _ = flags.GetString("config")
	for _, f := range config.Flags() {
		values, _ := flags.GetStringArray(f.Name)
		if len(values) == 0 {
			continue
		}
		text := values[len(values)-1]
		if f.List {
			text = strings.Join(values, ",")
		}
		src.Flags = append(src.Flags, config.Setting{Key: f.Key, Value: text, Flag: "--" + f.Name})
	}
	set, _ := flags.GetStringArray("set")
	for _, text := range set {
		key, value, _ := strings.Cut(text, "=")
		src.Flags = append(src.Flags, config.Setting{Key: key, Value: value, Flag: "--set " + key})
	}
	return src
}
