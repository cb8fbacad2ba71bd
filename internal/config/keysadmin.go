package config

import (
	"fmt"
	"net"
)

// Admin is where the relay shows itself.
type Admin struct {
	Listen string // empty: nowhere
}

func adminKeys() []key {
	return []key{
		{path: "admin", kind: section, doc: "The admin server: metrics, probes, status and a live page."},
		{
			path: "admin.listen", kind: text, def: "127.0.0.1:9187", pattern: `^(([^\s:/]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})?$`, rule: "host:port, :port, or nothing",
			doc: "Address it listens on, without TLS or login. Empty: no admin server. A port of the default that is taken is no error, but a warning.",
		},
	}
}

// ListensByDefault reports whether nobody has said where the admin server listens.
func (c *Config) ListensByDefault() bool { return !c.isSet("admin.listen") }

func (c *Config) adminWarnings() []string {
	host, _, err := net.SplitHostPort(c.Admin.Listen)
	if err != nil || isThisMachine(host) {
		return nil
	}
	return []string{fmt.Sprintf("the admin server at %s can be read by whoever reaches it: positions, names of topics, errors, configuration without secrets", c.Admin.Listen)}
}
