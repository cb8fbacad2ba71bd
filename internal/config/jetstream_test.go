package config

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
)

const someCredentials = "-----BEGIN NATS USER JWT-----\n" + canary + "\n------END NATS USER JWT------\n"

func TestJetStreamProblems(t *testing.T) {
	creds := file(t, "relay.creds", []byte(someCredentials))
	empty := file(t, "empty", nil)
	for _, tt := range []struct{ name, file, want string }{
		{name: "smallest", file: "sink.jetstream.servers: [localhost:4222]\n"},
		{name: "credentials", file: "sink.jetstream: {servers: [localhost:4222], credentials_file: " + creds + "}\n"},
		{name: "no user", file: "sink.jetstream.password: x\n", want: "c.yaml:1: sink.jetstream.password: has no effect: sink.jetstream.user is not set"},
		{name: "no password", file: "sink.jetstream.user: x\n", want: "c.yaml:1: sink.jetstream.user: requires sink.jetstream.password or sink.jetstream.password_file"},
		{name: "two logins", file: "sink.jetstream: {token: a, nkey_seed: b}\n", want: "c.yaml:1: sink.jetstream.nkey_seed: contradicts sink.jetstream.token: a connection has one login"},
		{name: "no JWT", file: "sink.jetstream.credentials_file: " + empty + "\n", want: "c.yaml:1: sink.jetstream.credentials_file: " + empty + " contains no JWT of a user"},
		{name: "bucket", file: "sink.jetstream.servers: [a:1]\nposition_topic: a.b\n", want: "c.yaml:2: position_topic: found \"a.b\"; a bucket of NATS has letters, digits, '_' and '-' only"},
		{name: "timeout", file: "sink.jetstream.request_timeout: 1ms\n", want: "c.yaml:1: sink.jetstream.request_timeout: found 1ms; the minimum is 100ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, nil)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// The position record is in a bucket whose name NATS allows, and files of secrets are read for each login.
func TestJetStream(t *testing.T) {
	secret := file(t, "password", []byte("one\n"))
	creds := file(t, "relay.creds", []byte(someCredentials))
	cfg, err := load(t, "source.dsn: host=localhost\nsink.jetstream: {servers: [localhost:4222], user: u, password_file: "+secret+"}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !jetstream.IsBucket(cfg.PositionTopic) {
		t.Errorf("position_topic is %q", cfg.PositionTopic)
	}
	j, err := cfg.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		replace(t, secret, []byte(want+"\n"))
		if got, err := j.Credentials.Password(context.Background()); err != nil || got != want || j.Credentials.User != "u" {
			t.Errorf("%q, %v", got, err)
		}
	}
	cfg, err = load(t, "source.dsn: host=localhost\nsink.jetstream: {servers: [localhost:4222], credentials_file: "+creds+"}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err = cfg.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := j.Credentials.File(context.Background()); err != nil || string(got) != someCredentials {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	replace(t, creds, []byte(canary))
	if _, err := j.Credentials.File(context.Background()); err == nil || isMistake(err) || strings.Contains(err.Error(), canary) {
		t.Errorf("a file without a JWT: %v", err)
	}
}
