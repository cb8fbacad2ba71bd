package config

import (
	"math"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

func (c *Config) jetStreamKeys() []key {
	return slices.Concat([]key{
		{path: "sink.jetstream", doc: "A NATS server or cluster with JetStream. See [jetstream.md](jetstream.md)."},
		{
			path: "sink.jetstream.servers", at: &c.Sink.JetStream.Servers, needed: true, flag: "nats", usage: "NATS servers, `host:port` separated by commas", example: "[localhost:4222]",
			pattern: hostPortPattern, rule: "host:port",
			doc: "Servers of one cluster. List all of them: the relay connects to another one when it loses a server.",
		},
		{path: "sink.jetstream.user", at: &c.Sink.JetStream.User, expands: true, doc: "User name. Default: no login, or the client certificate."},
		{path: "sink.jetstream.password", at: &c.Sink.JetStream.Password, doc: "Password of the user."},
		{path: "sink.jetstream.password_file", at: &c.Sink.JetStream.PasswordFile, example: "/run/secrets/nats-password", doc: "File with the password."},
		{path: "sink.jetstream.token", at: &c.Sink.JetStream.Token, doc: "Token, for servers that use one in place of users."},
		{path: "sink.jetstream.token_file", at: &c.Sink.JetStream.TokenFile, doc: "File with the token."},
		{path: "sink.jetstream.nkey_seed", at: &c.Sink.JetStream.NkeySeed, doc: "Seed of an nkey, which begins with `SU`."},
		{path: "sink.jetstream.nkey_seed_file", at: &c.Sink.JetStream.NkeySeedFile, doc: "File with the seed."},
		{
			path: "sink.jetstream.credentials_file", at: &c.Sink.JetStream.CredentialsFile, example: "/run/secrets/relay.creds",
			doc: "File with a JWT and a seed (`.creds`). The relay reads this file and the other files of secrets again for each connection.",
		},
		{
			path: "sink.jetstream.inbox_prefix", at: &c.Sink.JetStream.InboxPrefix, pattern: `^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`, rule: "words of letters, digits, '_' and '-', separated by dots", def: "_INBOX",
			doc: "Prefix of the subjects to which servers respond. The user must be able to subscribe to everything below it.",
		},
		{
			path: "sink.jetstream.request_timeout", at: &c.Sink.JetStream.RequestTimeout, def: 5 * time.Second,
			doc: "How long the relay waits for the acknowledgement of a record before it sends the record again.",
		},
		{
			path: "sink.jetstream.bucket_replicas", at: &c.Sink.JetStream.BucketReplicas, min: 0, max: math.MaxInt8, def: 0,
			doc: "Replicas of the bucket in `position_topic` if the relay creates it. 0: 3 in a cluster, otherwise 1.",
		},
	}, windowKeys("sink.jetstream.window.", &c.Sink.JetStream.Window, lane.DefaultWindowBytes, lane.DefaultWindowRecords), tlsKeys(atJetStreamTLS, &c.Sink.JetStream.TLS))
}
