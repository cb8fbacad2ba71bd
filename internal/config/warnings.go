package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Warnings returns settings that are valid but that the operator should know about, one sentence each.
func (c *Config) Warnings() []string {
	out := slices.Concat(c.sourceWarnings(), c.broker().warn(c), c.adminWarnings(), c.tracingWarnings())
	if c.positions().IsZero() {
		out = append(out, c.positionKey()+" is empty: the relay does not detect a slot that was advanced or re-created while it was stopped, and only the relay's own fence limits duplicates if two relays overlap")
	}
	return out
}

func (c *Config) sourceWarnings() []string {
	pg, out, err := c.source()
	if err != nil {
		return nil // no connection is made
	}
	for _, a := range attempts(&pg.Config) {
		switch t := a.TLSConfig; {
		case isThisMachine(a.Host):
		case t == nil:
			out = append(out, fmt.Sprintf("rows from Postgres at %s are not encrypted on the network", a.Host))
		case isUnverified(t):
			out = append(out, fmt.Sprintf("the certificate of Postgres at %s is not verified; set sslmode=verify-full", a.Host))
		}
	}
	return slices.Compact(out)
}

func (c *Config) adminWarnings() []string {
	host, _, err := net.SplitHostPort(c.Admin.Listen)
	if err != nil || isThisMachine(host) {
		return nil
	}
	out := fmt.Sprintf("anyone who can connect to the admin server at %s can read positions, topic names, errors and the configuration without secrets", c.Admin.Listen)
	if len(c.AdminHosts()) == 0 {
		out += "; admin.hosts is empty, so it responds only under IP addresses and localhost"
	}
	return []string{out}
}

func (c *Config) tracingWarnings() []string {
	u, err := url.Parse(c.Tracing.Endpoint)
	if err != nil || u.Scheme != "http" || c.Tracing.Headers == "" || isThisMachine(u.Hostname()) {
		return nil
	}
	return []string{"tracing.headers are not encrypted on the network: tracing.endpoint is not https"}
}
