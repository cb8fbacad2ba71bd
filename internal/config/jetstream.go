package config

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
)

const (
	atJetStream    = "sink.jetstream."
	atJetStreamTLS = atJetStream + "tls."

	minRequestTimeout = 100 * time.Millisecond
)

// JetStream is a NATS server or cluster with JetStream.
type JetStream struct {
	Servers         []string
	User            string
	Password        Secret
	PasswordFile    string
	Token           Secret
	TokenFile       string
	NkeySeed        Secret
	NkeySeedFile    string
	CredentialsFile string
	InboxPrefix     string
	RequestTimeout  time.Duration
	BucketReplicas  int
	Window          Window
	TLS             TLS
}

func jetStreamBroker() broker {
	return broker{
		kind: "jetstream", title: "NATS JetStream", system: "nats", stores: true, store: "outbox-cdc",
		names: func(*Config) encode.Names { return jetstream.Names{} },
		check: (*Config).checkJetStream,
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.jetStream()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn:      func(c *Config) []string { return c.linkWarnings("NATS", atJetStream, c.Sink.JetStream.Servers) },
		addresses: func(c *Config) []string { return c.Sink.JetStream.Servers },
		reloads: []replaced{
			replacedLogin(atJetStream, "password", "token", "nkey_seed"),
			{section: atJetStream + "credentials_file", paths: []string{atJetStream + "credentials_file"}, fixed: true},
			replacedTLS(atJetStreamTLS),
		},
	}
}

// checkJetStream reports keys of sink.jetstream that contradict each other or others.
func (c *Config) checkJetStream() error {
	j := c.Sink.JetStream
	errs := []error{c.checkPorts(atJetStream+"servers", 1, j.Servers...), c.checkUser(atJetStream)}
	if c.PositionTopic != "" && !jetstream.IsBucket(c.PositionTopic) {
		errs = append(errs, c.invalid("position_topic", "found %q; a bucket of NATS has letters, digits, '_' and '-' only", c.PositionTopic))
	}
	if j.RequestTimeout < minRequestTimeout {
		errs = append(errs, c.invalid(atJetStream+"request_timeout", "found %s; the minimum is %s", j.RequestTimeout, minRequestTimeout))
	}
	_, err := c.natsLogin()
	errs = append(errs, err)
	_, err = c.encryption(atJetStreamTLS)
	return join(append(errs, err)...)
}

// jetStream returns the settings of sink.jetstream, or an [*Error] that names every missing or wrong key.
func (c *Config) jetStream() (jetstream.Config, error) {
	j := c.Sink.JetStream
	var serversErr error
	if len(j.Servers) == 0 {
		serversErr = missing(atJetStream + "servers")
	}
	encryption, tlsErr := c.encryption(atJetStreamTLS)
	login, loginErr := c.natsLogin()
	if err := join(serversErr, tlsErr, loginErr); err != nil {
		return jetstream.Config{}, err
	}
	cfg := jetstream.Config{
		Servers: j.Servers, Name: c.clientID(), Credentials: login, TLS: encryption, InboxPrefix: j.InboxPrefix,
		RequestTimeout: j.RequestTimeout, BucketReplicas: j.BucketReplicas, WindowBytes: j.Window.Bytes, WindowRecords: j.Window.Records,
	}
	if err := cfg.Validate(); err != nil {
		return jetstream.Config{}, c.invalid("sink.jetstream", "%v", err)
	}
	return cfg, nil
}

// natsLogin returns the credentials, nil if there are none. Each login reads files again; natsLogin reads them once to
// validate them.
func (c *Config) natsLogin() (*jetstream.Credentials, error) {
	j := c.Sink.JetStream
	var kinds []string
	for _, name := range []string{"password", "token", "nkey_seed", "credentials_file"} {
		if !c.field(atJetStream+name).IsZero() || c.files[atJetStream+name] != "" {
			kinds = append(kinds, name)
		}
	}
	switch {
	case len(kinds) == 0:
		return nil, nil
	case len(kinds) > 1:
		return nil, c.invalid(atJetStream+kinds[1], "contradicts %s%s: a connection has one login", atJetStream, kinds[0])
	}
	path := atJetStream + kinds[0]
	read := func(context.Context) (string, error) { return c.currentSecret(path) }
	if kinds[0] == "credentials_file" {
		_, err := c.readCredentials()
		return &jetstream.Credentials{File: func(context.Context) ([]byte, error) {
			data, err := c.now().readCredentials()
			return data, later(err)
		}}, err
	}
	if _, err := c.readSecret(path); err != nil {
		return nil, err
	}
	switch kinds[0] {
	case "password":
		return &jetstream.Credentials{User: j.User, Password: read}, nil
	case "token":
		return &jetstream.Credentials{Token: read}, nil
	}
	return &jetstream.Credentials{Seed: read}, nil
}

// readCredentials returns the content of credentials_file.
func (c *Config) readCredentials() ([]byte, error) {
	file := c.Sink.JetStream.CredentialsFile
	data, err := os.ReadFile(file) //nolint:gosec // which file is the operator's choice
	if err != nil {
		return nil, c.invalid(atJetStream+"credentials_file", "%s", fileReason(err))
	}
	if !strings.Contains(string(data), "-----BEGIN NATS USER JWT-----") {
		return nil, c.invalid(atJetStream+"credentials_file", "%s contains no JWT of a user", file)
	}
	return data, nil
}
