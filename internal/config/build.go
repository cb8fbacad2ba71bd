package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/connector"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Connector returns the settings of the relay, or an [*Error] with every key that is missing.
func (c *Config) Connector() (connector.Config, error) {
	pg, err := c.source()
	problems := problemsOf(err)
	if len(c.Sink.Kafka.Brokers) == 0 {
		problems = append(problems, problemsOf(c.missing("sink.kafka.brokers"))...)
	}
	kafka, err := c.kafka()
	problems = append(problems, problemsOf(err)...)
	if len(problems) > 0 {
		return connector.Config{}, &Error{Problems: problems}
	}
	cfg := connector.Config{
		Name:            c.name(),
		Source:          replication.Config{Conn: &pg.Config, Publication: c.Source.Publication, Slot: c.Source.Slot},
		Route:           c.route(),
		Sink:            kafka,
		Create:          c.Source.Create,
		Tables:          c.Outbox.Tables,
		FailIfSlotInUse: !c.Source.WaitForSlot,
		PositionTopic:   c.PositionTopic,
		StartupTimeout:  c.StartupTimeout,
		DrainTimeout:    c.DrainTimeout,
	}
	if c.OnBadRecord == deadLetter {
		cfg.DeadLetterTopic = c.DeadLetterTopic
	}
	return cfg, nil
}

// Setup returns what publication and slot are made from, or an [*Error] with every key that
// is missing.
func (c *Config) Setup() (replication.SetupConfig, error) {
	pg, err := c.source()
	if err != nil {
		return replication.SetupConfig{}, err
	}
	return replication.SetupConfig{
		Conn: &pg.Config, Publication: c.Source.Publication, Slot: c.Source.Slot, Tables: c.Outbox.Tables,
	}, nil
}

// source returns how to reach Postgres, and an error unless all that names the source is set.
func (c *Config) source() (*pgx.ConnConfig, error) {
	pg, err := c.Postgres()
	problems := problemsOf(err)
	var missing []string
	if c.Source.Publication == "" {
		missing = append(missing, "source.publication")
	}
	if c.Source.Slot == "" {
		missing = append(missing, "source.slot")
	}
	if len(missing) > 0 {
		problems = append(problems, problemsOf(c.missing(missing...))...)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return pg, nil
}

func (c *Config) name() string { return cmp.Or(c.Name, c.Source.Slot) }

func (c *Config) route() route.Config {
	return route.Config{
		Columns:          route.Columns(c.Outbox.Columns),
		Topic:            c.Outbox.Topic,
		TombstoneOnEmpty: c.Outbox.TombstoneOnEmpty,
		Place:            c.Outbox.Place,
		PositionHeaders:  c.Headers.Position,
	}
}

func (c *Config) kafka() (sink.Config, error) {
	k := c.Sink.Kafka
	encryption, err := c.kafkaTLS()
	if err != nil {
		return sink.Config{}, err
	}
	cfg := sink.Config{
		Brokers:              k.Brokers,
		ClientID:             cmp.Or(k.ClientID, c.name()),
		Compression:          k.Compression,
		Partitioner:          k.Partitioner,
		TLS:                  encryption,
		WindowBytes:          k.Window.Bytes,
		WindowRecords:        k.Window.Records,
		ConnectionsPerBroker: k.ConnectionsPerBroker,
	}
	if k.CreateTopics.Partitions != 0 {
		cfg.CreateTopics = &sink.TopicSpec{
			Partitions:        int32(k.CreateTopics.Partitions),
			ReplicationFactor: int16(k.CreateTopics.ReplicationFactor),
		}
	}
	if k.SASL.Mechanism != "" {
		cfg.SASL = &sink.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Password: string(k.SASL.Password)}
	}
	if err := cfg.Validate(); err != nil && len(k.Brokers) > 0 {
		return sink.Config{}, c.invalid("sink.kafka", "%v", err)
	}
	return cfg, nil
}

// kafkaTLS returns nil where TLS is not enabled. Keys that only matter with it are then an
// error: who names a certificate does not expect plain text.
func (c *Config) kafkaTLS() (*tls.Config, error) {
	const at = "sink.kafka.tls."
	t := c.Sink.Kafka.TLS
	if !t.Enabled {
		for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
			if c.isSet(at + name) {
				return nil, c.invalid(at+name, "has no effect: %senabled is not true", at)
			}
		}
		return nil, nil //nolint:nilnil // nil is the value sink takes for no TLS
	}
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator's explicit choice, warned about at the start
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, c.invalid(at+"ca_file", "%v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, c.invalid(at+"ca_file", "%s contains no certificate in PEM form", t.CAFile)
		}
	}
	switch {
	case t.CertFile == "" && t.KeyFile != "":
		return nil, c.invalid(at+"key_file", "%scert_file is needed too", at)
	case t.CertFile != "" && t.KeyFile == "":
		return nil, c.invalid(at+"cert_file", "%skey_file is needed too", at)
	case t.CertFile != "":
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, c.invalid(at+"cert_file", "%v", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// Warnings returns what is allowed but should be seen by whoever runs this, one sentence each.
func (c *Config) Warnings() []string {
	var out []string
	k := c.Sink.Kafka
	if k.TLS.Enabled && k.TLS.InsecureSkipVerify {
		out = append(out, "the certificates of the Kafka brokers are not verified")
	}
	leavesMachine := func(broker string) bool {
		host, _, _ := net.SplitHostPort(broker)
		return !isThisMachine(host)
	}
	if k.SASL.Mechanism == "PLAIN" && !k.TLS.Enabled && slices.ContainsFunc(k.Brokers, leavesMachine) {
		out = append(out, "the Kafka password crosses the network unencrypted")
	}
	if c.PositionTopic == "" {
		out = append(out, "position_topic is empty: a slot that was moved or made anew while nothing ran is not noticed")
	}
	return out
}
