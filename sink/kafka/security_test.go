package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

const password = "canary-5e9d"

// issueCertificate returns a certificate for host and the pool that trusts who signed it.
func issueCertificate(tb testing.TB, host string, until time.Time) (tls.Certificate, *x509.CertPool) {
	tb.Helper()
	authority := certtest.New()
	return authority.Issue(until, host).TLS, authority.Pool()
}

func login(mechanism, user, password string) *SASL {
	return &SASL{Mechanism: mechanism, User: user, Password: password}
}

// staticTLS is a Config.TLS for what does not change.
func staticTLS(c *tls.Config) func() (*tls.Config, error) {
	if c == nil {
		return nil
	}
	return func() (*tls.Config, error) { return c, nil }
}

// An onWarning is called when a warning is logged.
type onWarning func()

func (f onWarning) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("level=WARN")) {
		f()
	}
	return len(line), nil
}

// roundTrip opens a client, writes one record and waits for it. It stops an Open that warns that no
// broker is reached.
func roundTrip(t *testing.T, cfg Config, topic string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(sinktest.Context(t))
	defer cancel()
	j := sinktest.NewJournal()
	log := slog.New(slog.NewTextHandler(io.MultiWriter(j, onWarning(cancel)), nil))
	c, err := open(ctx, cfg, log, cfg.dial())
	if err != nil {
		if strings.Contains(err.Error()+j.String(), password) {
			t.Errorf("the password is in %q", err)
		}
		return err
	}
	defer c.Close()
	r := startRig(t, c, j, sink.WriterConfig{})
	r.send(recordFor(topic, 0, "x"))
	r.drain()
	return nil
}

// wantRoundTrip checks that a round trip succeeds, or fails with an error of class want that says
// why.
func wantRoundTrip(t *testing.T, cfg Config, topic string, want error, says string) {
	t.Helper()
	if err := roundTrip(t, cfg, topic); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("Open: %v, want %v and %q", err, want, says)
	}
}

func TestSASLLogin(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "alice", password), kfake.SeedTopics(1, "t"))
		for _, tc := range []struct {
			name string
			sasl *SASL
			is   error
			says string
		}{
			{"right password", login(mechanism, "alice", password), nil, ""},
			{"wrong password", login(mechanism, "alice", "wrong"), sink.ErrAccess, ""},
			{"wrong user", login(mechanism, "bob", password), sink.ErrAccess, ""},
			{"no login", nil, sink.ErrUnreachable, "SASL login?"},
		} {
			t.Run(mechanism+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				wantRoundTrip(t, Config{Brokers: k.Addrs, SASL: tc.sasl}, "t", tc.is, tc.says)
			})
		}
	}
}

func TestTLSHandshake(t *testing.T) {
	t.Parallel()
	good, trusted := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	_, others := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	elsewhere, elsewhereTrusted := issueCertificate(t, "kafka.example", time.Now().Add(time.Hour))
	expired, expiredTrusted := issueCertificate(t, "127.0.0.1", time.Now().Add(-time.Minute))
	for _, tc := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		is     error
		says   string
	}{
		{"verified", serverTLS(good), &tls.Config{RootCAs: trusted}, nil, ""},
		{"not verified", serverTLS(expired), &tls.Config{InsecureSkipVerify: true}, nil, ""},
		{"verified by another name", serverTLS(elsewhere), &tls.Config{RootCAs: elsewhereTrusted, ServerName: "kafka.example"}, nil, ""},
		{"unknown authority", serverTLS(good), &tls.Config{RootCAs: others}, sink.ErrAccess, "trusted authority"},
		{"another name", serverTLS(elsewhere), &tls.Config{RootCAs: elsewhereTrusted}, sink.ErrAccess, "another name"},
		{"expired", serverTLS(expired), &tls.Config{RootCAs: expiredTrusted}, sink.ErrAccess, "not valid"},
		{"client certificate wanted", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}, &tls.Config{RootCAs: trusted}, sink.ErrAccess, "client certificate"},
		{"client certificate given", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}, &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{good}}, nil, ""},
		{"older than TLS 1.2", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, &tls.Config{RootCAs: trusted}, sink.ErrAccess, "protocol version"},
		{"plaintext to TLS", serverTLS(good), nil, sink.ErrUnreachable, "expect TLS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.TLS(tc.server), kfake.SeedTopics(1, "t"))
			wantRoundTrip(t, Config{Brokers: k.Addrs, TLS: staticTLS(tc.client)}, "t", tc.is, tc.says)
		})
	}
	t.Run("TLS to plaintext", func(t *testing.T) { // which waits for more of what it takes for a request
		t.Parallel()
		ctx, cancel := context.WithCancel(sinktest.Context(t))
		defer cancel()
		cfg := Config{Brokers: kafkatest.Fake(t, kfake.NumBrokers(1)).Addrs, TLS: staticTLS(&tls.Config{RootCAs: trusted})}
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return onWrite{c, cancel}, err
		}
		if _, err := cfg.Open(ctx, slog.New(slog.DiscardHandler)); !errors.Is(err, sink.ErrUnreachable) || !strings.Contains(err.Error(), "plaintext listener?") {
			t.Errorf("Open: %v", err)
		} else if advised, ok := errors.AsType[sink.Advised](err); !ok || !strings.Contains(advised.Advice(), "sink.kafka.tls") {
			t.Errorf("Open: %v, %+v", err, advised)
		}
	})
}

// An onWrite is a connection that calls the function after each write.
type onWrite struct {
	net.Conn
	written func()
}

func (c onWrite) Write(b []byte) (int, error) {
	defer c.written()
	return c.Conn.Write(b)
}

func serverTLS(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }

// TestOpenNeedsARightToWrite: without any right to write, Open says so at once.
func TestOpenNeedsARightToWrite(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "reader", password))
	err := roundTrip(t, Config{Brokers: k.Addrs, SASL: login("PLAIN", "reader", password)}, "t")
	if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "IdempotentWrite") {
		t.Errorf("Open: %v", err)
	}
}

// TestDeniedTopicIsRetried: a right that is missing for one topic is waited for, loudly, and
// only by that topic.
func TestDeniedTopicIsRetried(t *testing.T) {
	write := func(topic string) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}
	}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "allowed", "forbidden"),
		kfake.User("PLAIN", "writer", password, write("allowed")))
	j := sinktest.NewJournal()
	c := openClient(t, Config{Brokers: k.Addrs, SASL: login("PLAIN", "writer", password)}, j.Logger())
	if err := c.CheckDestinations(sinktest.Context(t), "forbidden"); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("CheckDestinations: %v", err)
	}
	r := startRig(t, c, j, sink.WriterConfig{})
	r.send(recordFor("forbidden", 0, "x"))
	r.send(recordFor("allowed", 0, "x"))
	r.AwaitAcked(1)
	r.Await("the log line", func() bool { return strings.Contains(j.String(), "TOPIC_AUTHORIZATION_FAILED") })
	r.Stop(errors.New("enough"))
	if e, ok := errors.AsType[*sink.UndeliveredError](r.Wait()); !ok || e.Records != 1 {
		t.Errorf("Run: %v", r.Wait())
	}
}

// TestDeniedLoginIsRetried: a login that is refused while we run heals when the broker knows the
// password again. Each time it is refused the log says so once, the second time too.
func TestDeniedLoginIsRetried(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{SASL: login("PLAIN", "alice", password)})
		r.send(recordFor("t", 0, "x"))
		r.AwaitAcked(1)
		for n := 1; n <= 2; n++ {
			refusal := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
			l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				return nil, errors.New("dropped"), true
			})
			r.send(recordFor("t", 0, "y"))
			r.producer.Flush()
			bubble.Sleep(time.Minute)
			if s := r.Journal.String(); strings.Count(s, "broker rejects the connection") != n || strings.Count(s, "sink stalled") != n || strings.Contains(s, password) {
				l.Errorf("log: %s", s)
			}
			if got := r.client.Stat().StallAdvice; got != loginAdvice || !strings.Contains(r.Journal.String(), "fix=\""+loginAdvice) {
				l.Errorf("the stall says %q, the log:\n%s", got, r.Journal.String())
			}
			refusal.Remove()
			r.AwaitAcked(1 + n)
			bubble.Sleep(stallAfter) // so that the monitor sees the end of the first stall before the second one starts
		}
		r.drain()
	}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", password), kfake.SeedTopics(1, "t"))
}

// bearerLogin is a login with a token that stays the same.
func bearerLogin(token string) *SASL {
	return &SASL{Mechanism: "OAUTHBEARER", Secret: func(context.Context) (string, error) { return token, nil }}
}

// unsecuredToken returns a token without signature, as Kafka's validator for development takes it:
// https://kafka.apache.org/documentation/#security_sasl_oauthbearer_unsecured_retrieval
func unsecuredToken(subject string, from, until time.Time) string {
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, from.Unix(), until.Unix())) + "."
}

// TestTokenIsRenewedOverTheSameConnection when the broker's session ends. Expired tokens and other
// texts are denied access.
func TestTokenIsRenewedOverTheSameConnection(t *testing.T) {
	t.Parallel()
	const session = 2 * time.Second
	const listener = "listener.name.sasl_plaintext."
	k := kafkatest.Start(t, kafkatest.Config{
		Users: map[string]string{"alice": password},
		Properties: map[string]string{
			"sasl.enabled.mechanisms": "OAUTHBEARER",
			listener + "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule" +
				` required unsecuredLoginStringClaim_sub="broker";`,
			"connections.max.reauth.ms": fmt.Sprint(session.Milliseconds()),
		},
	})
	topic := k.Topic(t, 1, nil)
	cfg := func(sasl *SASL) Config { return Config{Brokers: []string{k.SASLAddr()}, SASL: sasl} }

	now := time.Now()
	expired := unsecuredToken(password, now.Add(-time.Hour), now.Add(-time.Minute))
	for name, token := range map[string]string{"expired": expired, "no token": password, "empty": ""} {
		if err := roundTrip(t, cfg(bearerLogin(token)), topic); !errors.Is(err, sink.ErrAccess) || strings.Contains(fmt.Sprint(err), expired) {
			t.Errorf("%s: %v", name, err)
		}
	}

	var asked, dials atomic.Int32
	c := cfg(&SASL{
		Mechanism: "OAUTHBEARER", Extensions: map[string]string{"tenant": "a b"},
		Secret: func(context.Context) (string, error) {
			asked.Add(1)
			return unsecuredToken("alice", now.Add(-time.Minute), now.Add(time.Hour)), nil
		},
	})
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	r := newRig(t, c)
	r.send(recordFor(topic, 0, "x"))
	r.AwaitAcked(1)
	connections, tokens := dials.Load(), asked.Load()
	for n := 2; asked.Load() < tokens+2; n++ {
		r.send(recordFor(topic, 0, "x"))
		r.AwaitAcked(n)
		<-time.After(session / 10)
	}
	r.drain()
	if more := dials.Load() - connections; more > 0 {
		t.Errorf("%d connections were made for it", more)
	}
}

// TestSecretErrorsAreClassified: what comes before a login is told apart as the login itself is.
func TestSecretErrorsAreClassified(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", password), kfake.SeedTopics(1, "t"))
	for name, tc := range map[string]struct {
		secret func(ctx context.Context) (string, error)
		is     error
	}{
		"refused":     {func(context.Context) (string, error) { return "", fmt.Errorf("%w: client is locked", sink.ErrAccess) }, sink.ErrAccess},
		"unreachable": {func(context.Context) (string, error) { return "", os.ErrNotExist }, sink.ErrUnreachable},
		"silent":      {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", context.Cause(ctx) }, sink.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(sinktest.Context(t))
			defer cancel()
			secret := func(ctx context.Context) (string, error) {
				if errors.Is(tc.is, sink.ErrUnreachable) { // otherwise Open retries for ever
					cancel()
				}
				return tc.secret(ctx)
			}
			cfg := Config{Brokers: k.Addrs, SASL: &SASL{Mechanism: "PLAIN", User: "alice", Secret: secret}}
			_, err := cfg.Open(ctx, slog.New(slog.DiscardHandler))
			if !errors.Is(err, tc.is) {
				t.Errorf("Open: %v, want %v", err, tc.is)
			}
			if _, ok := errors.AsType[sink.Advised](err); !ok {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

// TestReplacedSecretIsUsed: the password is changed on the cluster and in our hands while records
// flow, and the next login uses it. Until then it is refused, and loudly so.
func TestReplacedSecretIsUsed(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		var current atomic.Value
		current.Store(password)
		r := l.rig(Config{SASL: &SASL{
			Mechanism: "SCRAM-SHA-256", User: "alice",
			Secret: func(context.Context) (string, error) { return current.Load().(string), nil },
		}})
		r.send(recordFor("t", 0, "x"))
		r.AwaitAcked(1)

		const next = "another-canary-07b1"
		admin := kadm.NewClient(l.reader(kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism())))
		if _, err := admin.AlterUserSCRAMs(l.Context(), nil, []kadm.UpsertSCRAM{
			{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: next},
		}); err != nil {
			l.Fatal(err)
		}
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // the connection ends
			return nil, errors.New("dropped"), true
		})
		r.send(recordFor("t", 0, "y"))
		r.producer.Flush()
		r.awaitLog("broker rejects the connection")
		current.Store(next)
		r.drain()
		if s := r.Journal.String(); strings.Contains(s, password) || strings.Contains(s, next) {
			l.Errorf("a password is in %s", s)
		}
	}, kfake.EnableSASL(), kfake.SeedTopics(1, "t"),
		kfake.Superuser("SCRAM-SHA-256", "alice", password), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
}

// TestListenersOfARealBroker connects with right and wrong SASL and TLS.
func TestListenersOfARealBroker(t *testing.T) {
	t.Parallel()
	k := kafkatest.Start(t, kafkatest.Config{Users: map[string]string{"alice": password}, TLS: true})
	topic := k.Topic(t, 1, nil)
	_, others := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	right, wrong := login("SCRAM-SHA-512", "alice", password), login("SCRAM-SHA-256", "alice", "wrong")
	for _, tc := range []struct {
		name string
		cfg  Config
		is   error
		says string
	}{
		{"PLAIN", Config{Brokers: []string{k.SASLAddr()}, SASL: login("PLAIN", "alice", password)}, nil, ""},
		{"SCRAM-SHA-256", Config{Brokers: []string{k.SASLAddr()}, SASL: login("SCRAM-SHA-256", "alice", password)}, nil, ""},
		{"SCRAM-SHA-512", Config{Brokers: []string{k.SASLAddr()}, SASL: right}, nil, ""},
		{"TLS and SCRAM", Config{Brokers: []string{k.TLSAddr()}, SASL: right, TLS: staticTLS(k.TLSConfig())}, nil, ""},
		{"wrong PLAIN password", Config{Brokers: []string{k.SASLAddr()}, SASL: login("PLAIN", "alice", "wrong")}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"wrong SCRAM password", Config{Brokers: []string{k.SASLAddr()}, SASL: wrong}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"unknown user", Config{Brokers: []string{k.SASLAddr()}, SASL: login("SCRAM-SHA-512", "bob", password)}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"no login", Config{Brokers: []string{k.SASLAddr()}}, sink.ErrUnreachable, "SASL login?"},
		{"login where none is expected", Config{Brokers: k.Addrs, SASL: right}, sink.ErrAccess, ""},
		{"unknown authority", Config{Brokers: []string{k.TLSAddr()}, SASL: right, TLS: staticTLS(&tls.Config{RootCAs: others})}, sink.ErrAccess, "trusted authority"},
		{"plaintext to TLS", Config{Brokers: []string{k.TLSAddr()}, SASL: right}, sink.ErrAccess, "expects TLS"},
		{"TLS to plaintext", Config{Brokers: k.Addrs, TLS: staticTLS(k.TLSConfig())}, sink.ErrUnreachable, "plaintext listener?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			wantRoundTrip(t, tc.cfg, topic, tc.is, tc.says)
		})
	}
}
