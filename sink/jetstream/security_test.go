package jetstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

const password = "canary-5e9d"

func fixed(secret string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return secret, nil }
}

func withUser(cfg Config, user string) Config {
	cfg.Credentials = &Credentials{User: user, Password: fixed(password)}
	return cfg
}

// firstContact opens a sink, and fails the test if an error or a log line has the secret.
func firstContact(t *testing.T, cfg Config) error {
	t.Helper()
	j := sinktest.NewJournal()
	on, err := cfg.Open(sinktest.Context(t), j.Logger())
	if strings.Contains(fmt.Sprint(err, j, cfg.String()), password) {
		t.Errorf("the secret is in %v\n%s", err, j)
	}
	if err != nil {
		return err
	}
	return on.Close()
}

// Each kind of credentials logs in, and a wrong one is no access.
func TestCredentials(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := pair.Seed()
	public, _ := pair.PublicKey()
	other, _ := nkeys.CreateUser()
	otherSeed, _ := other.Seed()
	users := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "relay", Password: password}}
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	})
	token := natstest.Start(t, func(o *server.Options) { o.Authorization = password })
	for _, test := range []struct {
		name   string
		server *natstest.Server
		with   *Credentials
		ok     bool
	}{
		{"password", users, &Credentials{User: "relay", Password: fixed(password)}, true},
		{"wrong password", users, &Credentials{User: "relay", Password: fixed(password + "x")}, false},
		{"none", users, nil, false},
		{"nkey", users, &Credentials{Seed: fixed(string(seed))}, true},
		{"other nkey", users, &Credentials{Seed: fixed(string(otherSeed))}, false},
		{"not a seed", users, &Credentials{Seed: fixed(password)}, false},
		{"token", token, &Credentials{Token: fixed(password)}, true},
		{"wrong token", token, &Credentials{Token: fixed(password + "x")}, false},
		{"not a credentials file", users, &Credentials{File: func(context.Context) ([]byte, error) { return []byte(password), nil }}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(test.server)
			cfg.Credentials = test.with
			if err := firstContact(t, cfg); (err == nil) != test.ok || err != nil && !errors.Is(err, sink.ErrAccess) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

// A .creds file of an account with JetStream logs in.
func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	system, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	operatorKey, _ := operator.PublicKey()
	accountKey, _ := account.PublicKey()
	systemKey, _ := system.PublicKey()
	userKey, _ := user.PublicKey()
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1}
	accountJWT, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	systemJWT, _ := jwt.NewAccountClaims(systemKey).Encode(operator)
	userJWT, _ := jwt.NewUserClaims(userKey).Encode(account)
	seed, _ := user.Seed()
	file, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, func(o *server.Options) {
		resolver := new(server.MemAccResolver)
		_, _ = resolver.Store(accountKey, accountJWT), resolver.Store(systemKey, systemJWT)
		o.AccountResolver, o.TrustedKeys, o.SystemAccount = resolver, []string{operatorKey}, systemKey
	})
	cfg := config(s)
	cfg.Credentials = &Credentials{File: func(context.Context) ([]byte, error) { return file, nil }}
	if err := firstContact(t, cfg); err != nil {
		t.Error(err)
	}
}

// TLS: a certificate of an unknown authority is no access, and so is a missing client certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, until := certtest.New(), time.Now().Add(time.Hour)
	s := natstest.Start(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 5
		o.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.Issue(until, "127.0.0.1").TLS},
			ClientCAs: authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		}
	})
	client := []tls.Certificate{authority.Issue(until, "relay").TLS}
	plain := natstest.Start(t)
	for _, test := range []struct {
		name   string
		server *natstest.Server
		tls    *tls.Config
		ok     bool
	}{
		{"both certificates", s, &tls.Config{RootCAs: authority.Pool(), Certificates: client}, true},
		{"no client certificate", s, &tls.Config{RootCAs: authority.Pool()}, false},
		{"unknown authority", s, &tls.Config{RootCAs: certtest.New().Pool(), Certificates: client}, false},
		{"other host", s, &tls.Config{RootCAs: authority.Pool(), Certificates: client, ServerName: "nats.example"}, false},
		{"server without TLS", plain, &tls.Config{RootCAs: authority.Pool()}, false},
		{"client without TLS", s, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(test.server)
			if test.tls != nil {
				cfg.TLS = func() (*tls.Config, error) { return test.tls, nil }
			}
			if err := firstContact(t, cfg); (err == nil) != test.ok || err != nil && !errors.Is(err, sink.ErrAccess) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

// Credentials are asked for each connection, so a new secret is used after a connection was lost. A rejected login does
// not end a Writer.
func TestSecretIsReplaced(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{{Username: "relay", Password: "first"}} })
	s.Options = []nats.Option{nats.UserInfo("relay", "first")}
	proxy := faultproxy.Start(t, s.Addrs[0])
	stream := s.Stream(t, jetstream.StreamConfig{})
	var secret atomic.Value
	secret.Store("first")
	r := newRig(t, Config{Servers: []string{proxy.Addr()}, Credentials: &Credentials{
		User: "relay", Password: func(context.Context) (string, error) { return secret.Load().(string), nil },
	}}, sink.WriterConfig{})
	r.sendRows(stream, 50, 5)
	r.AwaitAcked(50)
	secret.Store("second")
	s.Restart(t, func(o *server.Options) { o.Users[0].Password = "second" })
	s.Options = []nats.Option{nats.UserInfo("relay", "second")}
	r.sendRows(stream, 50, 5)
	r.AwaitAcked(100)
	r.wantOnce(&s.Client, stream)
	secret.Store("wrong")
	proxy.Cut()
	r.sendRows(stream, 50, 5)
	r.Await("a rejected login", func() bool { return strings.Contains(r.Sink.Stat().LastError, "no access to NATS") })
	if r.Ended() {
		t.Error("a rejected login has ended the Writer")
	}
}

// A user with the documented rights can do everything that the relay does, and no more.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	stream, bucket := "orders", "outbox_cdc"
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: password},
			{Username: "relay", Password: password, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					stream, "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*",
					"$JS.API.STREAM.MSG.GET.KV_" + bucket, "$KV." + bucket + ".>",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	})
	s.Options = []nats.Option{nats.UserInfo("admin", password)}
	js := s.JetStream(t)
	s.Stream(t, jetstream.StreamConfig{Name: stream})
	s.Stream(t, jetstream.StreamConfig{Name: "secret"})
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, withUser(config(s), "relay"), sink.WriterConfig{})
	store, err := sink.OpenPositions(sinktest.Context(t), r.Sink, bucket, "relay")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Post(sinktest.Context(t), sink.PositionKey, []byte("v")); err != nil {
		t.Error(err)
	}
	if values, err := store.Read(sinktest.Context(t)); err != nil || len(values) != 1 {
		t.Errorf("Read: %v, %v", values, err)
	}
	if _, err := sink.OpenPositions(sinktest.Context(t), r.Sink, "other", "relay"); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("a bucket that may not be created: %v", err)
	}
	r.sendRows(stream, 20, 5)
	r.AwaitAcked(20)
	r.sendRows("secret", 5, 5)
	r.awaitLog("may not publish")
	r.sendRows(stream, 20, 5)
	r.AwaitAcked(40)
	if strings.Contains(r.Journal.String(), password) {
		t.Errorf("the password is in the log:\n%s", r.Journal)
	}
}

func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// The documented rights for reading suffice, also in a stream with other subjects.
func TestLeastRightsToRead(t *testing.T) {
	t.Parallel()
	const stream = "OUTBOX"
	s := natstest.Start(t, func(o *server.Options) {
		api := "$JS.API.CONSUMER."
		o.Users = []*server.User{
			{Username: "admin", Password: password},
			{Username: "reader", Password: password, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*",
					api + "CREATE." + stream + ".>", api + "INFO." + stream + ".>", api + "DELETE." + stream + ".>", api + "MSG.NEXT." + stream + ".>",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	})
	s.Options = []nats.Option{nats.UserInfo("admin", password)}
	s.Stream(t, jetstream.StreamConfig{Name: stream, Subjects: []string{"outbox.>"}})
	r := newRig(t, withUser(config(s), "admin"), sink.WriterConfig{})
	r.sendRows("outbox.dead-letter", 20, 5)
	r.sendRows("outbox.other", 20, 5)
	r.Drain(40)
	deadLetters, err := withUser(config(s), "reader").OpenDeadLetters(sinktest.Context(t), "outbox.dead-letter", r.Journal.Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer deadLetters.Close()
	ranges, err := deadLetters.OffsetRanges(sinktest.Context(t))
	if err != nil || len(ranges) != 1 {
		t.Fatalf("Spans: %v, %v", ranges, err)
	}
	read := 0
	err = deadLetters.Read(sinktest.Context(t), ranges[0], func(rec *sink.StoredRecord) error {
		if rec.Topic != "outbox.dead-letter" {
			t.Errorf("read %s at %d", rec.Topic, rec.Offset)
		}
		read++
		return nil
	})
	if err != nil || read != 20 {
		t.Errorf("read %d: %v", read, err)
	}
}
