package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Warnings returns what is allowed but should be seen by whoever runs this, one sentence each.
func (c *Config) Warnings() []string {
	out := slices.Concat(c.sourceWarnings(), c.kafkaWarnings(), c.adminWarnings(), c.tracingWarnings())
	if c.PositionTopic == "" {
		out = append(out, "position_topic is empty: the relay does not detect a slot that was advanced or re-created while it was stopped, and only the relay's own fence bounds an overlap of two relays")
	}
	return out
}

func (c *Config) sourceWarnings() []string {
	pg, err := c.Postgres()
	if err != nil {
		return nil // nothing is contacted then
	}
	var out []string
	for _, a := range attempts(&pg.Config) {
		switch t := a.TLSConfig; {
		case isThisMachine(a.Host):
		case t == nil:
			out = append(out, fmt.Sprintf("rows cross the network from Postgres at %s unencrypted", a.Host))
		case isUnverified(t):
			out = append(out, fmt.Sprintf("the certificate of Postgres at %s is not verified: sslmode=verify-full does", a.Host))
		}
	}
	return slices.Compact(out)
}

func (c *Config) kafkaWarnings() []string {
	var out []string
	k := c.Sink.Kafka
	remote := slices.ContainsFunc(k.Brokers, func(broker string) bool {
		host, _, _ := net.SplitHostPort(broker)
		return !isThisMachine(host)
	})
	switch {
	case k.TLS.Enabled && k.TLS.InsecureSkipVerify:
		out = append(out, "the certificates of the Kafka brokers are not verified")
	case k.TLS.Enabled, !remote:
	case k.SASL.Mechanism == saslPlain:
		out = append(out, "the Kafka password crosses the network unencrypted")
	case k.SASL.Mechanism == saslBearer:
		out = append(out, "the Kafka token crosses the network unencrypted")
	case !c.isSet(atTLS + "enabled"):
		out = append(out, "records cross the network to Kafka unencrypted: set sink.kafka.tls.enabled to true, or to false if that is meant")
	}
	if u, err := url.Parse(k.SASL.TokenURL); err == nil && u.Scheme == "http" && !isThisMachine(u.Hostname()) {
		out = append(out, "the client secret crosses the network unencrypted: sink.kafka.sasl.token_url is not https")
	}
	return out
}

func (c *Config) adminWarnings() []string {
	host, _, err := net.SplitHostPort(c.Admin.Listen)
	if err != nil || isThisMachine(host) {
		return nil
	}
	out := fmt.Sprintf("the admin server at %s can be read by whoever reaches it: positions, names of topics, errors, configuration without secrets", c.Admin.Listen)
	if len(c.AdminHosts()) == 0 {
		out += "; admin.hosts is empty, so it answers to addresses and localhost only, not to names"
	}
	return []string{out}
}

func (c *Config) tracingWarnings() []string {
	u, err := url.Parse(c.Tracing.Endpoint)
	if err != nil || u.Scheme != "http" || c.Tracing.Headers == "" || isThisMachine(u.Hostname()) {
		return nil
	}
	return []string{"the headers for the receiver of spans cross the network unencrypted: tracing.endpoint is not https"}
}
