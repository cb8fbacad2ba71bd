package config

import (
	"strings"
	"time"
)

// SinkKind returns the name of the section of the configured broker, such as jetstream.
func (c *Config) SinkKind() string { return c.broker().kind }

// SinkSettings returns the keys of the broker's section that are set, by path, with values for a YAML file. It does not mask
// secrets, and does not read files that have them.
func (c *Config) SinkSettings() map[string]any {
	all := make(map[string]any)
	for path, s := range c.settings {
		if !strings.HasPrefix(path, c.broker().at()) || !c.isSet(path) {
			continue
		}
		switch v := s.value.(type) {
		case Secret:
			all[path] = string(v)
		case time.Duration:
			all[path] = v.String()
		default:
			all[path] = v
		}
	}
	return all
}
