package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
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

// roundTrip opens a client, writes one record and waits for it.
func roundTrip(t *testing.T, cfg Config, topic string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j := new(journal)
	c, err := open(ctx, cfg, j.logger(), cfg.dial())
	if err != nil {
		if strings.Contains(err.Error()+j.String(), password) {
			t.Errorf("the password is in %q", err)
		}
		return err
	}
	defer c.Close()
	r := startRig(t, c, j, sink.WriterConfig{})
	r.send(recordFor(topic, 0, "x"))
	r.mustDrain()
	return nil
}

func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "alice", password), kfake.SeedTopics(1, "t"))
			cfg := Config{Brokers: k.Addrs, SASL: login(mechanism, "alice", password)}
			if err := roundTrip(t, cfg, "t", testTimeout); err != nil {
				t.Errorf("right password: %v", err)
			}
			for name, sasl := range map[string]*SASL{
				"wrong password": login(mechanism, "alice", "wrong"),
				"wrong user":     login(mechanism, "bob", password),
			} {
				cfg.SASL = sasl
				began := time.Now()
				if err := roundTrip(t, cfg, "t", time.Second); !errors.Is(err, sink.ErrAccess) || time.Since(began) > time.Second {
					t.Errorf("%s: %v after %s", name, err, time.Since(began))
				}
			}
			cfg.SASL = nil
			err := roundTrip(t, cfg, "t", time.Second)
			if !errors.Is(err, sink.ErrUnreachable) || !strings.Contains(err.Error(), "SASL login?") {
				t.Errorf("no login: %v", err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	good, trusted := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Minute))
	_, others := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Minute))
	elsewhere, elsewhereTrusted := issueCertificate(t, "kafka.example", time.Now().Add(time.Minute))
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
			k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.TLS(tc.server), kfake.SeedTopics(1, "t"))
			testTLS(t, Config{Brokers: k.Addrs, TLS: staticTLS(tc.client)}, tc.is, tc.says)
		})
	}
	t.Run("TLS to plaintext", func(t *testing.T) {
		k := kafkatest.Fake(t, kfake.NumBrokers(1))
		testTLS(t, Config{Brokers: k.Addrs, TLS: staticTLS(&tls.Config{RootCAs: trusted})}, sink.ErrUnreachable, "plaintext listener?")
	})
}

func serverTLS(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }

func testTLS(t *testing.T, cfg Config, is error, says string) {
	t.Helper()
	began := time.Now()
	err := roundTrip(t, cfg, "t", time.Second)
	if !errors.Is(err, is) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("Open: %v, want %v and %q", err, is, says)
	}
	if errors.Is(is, sink.ErrAccess) && time.Since(began) > time.Second {
		t.Errorf("it took %s", time.Since(began))
	}
}

// TestClusterAuthorization: without any right to write, Open says so at once.
func TestClusterAuthorization(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "reader", password))
	err := roundTrip(t, Config{Brokers: k.Addrs, SASL: login("PLAIN", "reader", password)}, "t", time.Second)
	if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "IdempotentWrite") {
		t.Errorf("Open: %v", err)
	}
}

// TestTopicAuthorization: a right that is missing for one topic is waited for, loudly, and
// only by that topic.
func TestTopicAuthorization(t *testing.T) {
	write := func(topic string) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}
	}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "allowed", "forbidden"),
		kfake.User("PLAIN", "writer", password, write("allowed")))
	j := new(journal)
	c := openClient(t, Config{Brokers: k.Addrs, SASL: login("PLAIN", "writer", password)}, j.logger())
	if err := c.CheckDestinations(testContext(t), "forbidden"); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("CheckDestinations: %v", err)
	}
	r := startRig(t, c, j, sink.WriterConfig{})
	r.send(recordFor("forbidden", 0, "x"))
	r.send(recordFor("allowed", 0, "x"))
	r.waitAcked(1)
	r.wait("the log line", func() bool { signal(r.changed); return strings.Contains(j.String(), "TOPIC_AUTHORIZATION_FAILED") })
	r.cancel(errors.New("enough"))
	if e, ok := errors.AsType[*sink.UndeliveredError](r.waitRun()); !ok || e.Records != 1 {
		t.Errorf("Run: %v", r.waitRun())
	}
}

// TestPasswordRotated: a login that is refused while we run heals when the broker knows the
// password again.
func TestPasswordRotated(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{SASL: login("PLAIN", "alice", password)})
		r.send(recordFor("t", 0, "x"))
		r.waitAcked(1)
		refusal := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("dropped"), true
		})
		r.send(recordFor("t", 0, "y"))
		r.producer.Flush()
		time.Sleep(time.Minute)
		if s := r.journal.String(); strings.Count(s, "broker refuses the connection") != 1 || strings.Count(s, "sink stalled") != 1 || strings.Contains(s, password) {
			l.Errorf("log: %s", s)
		}
		refusal.Remove()
		r.mustDrain()
	}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", password), kfake.SeedTopics(1, "t"))
}

// TestUnreachable: tried again until the context ends, then every address has its cause.
func TestUnreachable(t *testing.T) {
	addrs := []string{unusedAddr(t), unusedAddr(t), "no-such-host.invalid:9092"}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("startup timeout"))
	defer cancel()
	j := new(journal)
	_, err := Config{Brokers: addrs}.Open(ctx, j.logger())
	if !errors.Is(err, sink.ErrUnreachable) {
		t.Fatalf("Open: %v", err)
	}
	for _, part := range append(addrs, "refused", "startup timeout") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if s := j.String(); strings.Count(s, "\n") != 1 {
		t.Errorf("log: %s", s)
	}
}

// TestReachedLater: a cluster that starts after us is found.
func TestReachedLater(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.Close()
		addrs := slices.Concat([]string{"localhost:1"}, l.addrs)
		time.AfterFunc(20*time.Second, func() {
			fake, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(l.net.Listen), kfake.SeedTopics(1, "t"))
			if err != nil {
				panic(err)
			}
			l.Cleanup(fake.Close)
		})
		began := time.Now()
		r := l.rig(Config{Brokers: addrs})
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			l.Errorf("reached after %s", took)
		}
		r.send(recordFor("t", 0, "x"))
		r.mustDrain()
	})
}

func TestValidate(t *testing.T) {
	ok := Config{Brokers: []string{"localhost:9092"}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for field, spoil := range map[string]func(*Config){
		"Brokers":              func(c *Config) { c.Brokers = nil },
		"Compression":          func(c *Config) { c.Compression = "rar" },
		"Partitioner":          func(c *Config) { c.Partitioner = "random" },
		"SASL.Mechanism":       func(c *Config) { c.SASL = &SASL{Mechanism: "GSSAPI", User: "u"} },
		"SASL.User":            func(c *Config) { c.SASL = &SASL{Mechanism: "PLAIN", Password: password} },
		"SASL.Password":        func(c *Config) { c.SASL = &SASL{Mechanism: "PLAIN", User: "u"} },
		"SASL.Secret":          func(c *Config) { c.SASL = &SASL{Mechanism: "OAUTHBEARER", Password: password} },
		"SASL.Extensions":      func(c *Config) { c.SASL = bearerLogin(password); c.SASL.Extensions = map[string]string{"auth": "x"} },
		"CreateTopics":         func(c *Config) { c.CreateTopics = &TopicSpec{Partitions: -2} },
		"WindowBytes":          func(c *Config) { c.WindowBytes = -1 },
		"WindowRecords":        func(c *Config) { c.WindowRecords = -1 },
		"MaxMessageBytes":      func(c *Config) { c.MaxMessageBytes = -1 },
		"ConnectionsPerBroker": func(c *Config) { c.ConnectionsPerBroker = -1 },
	} {
		cfg := ok
		spoil(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := cfg.Open(t.Context(), new(journal).logger()); err == nil {
			t.Errorf("%s: Open takes it", field)
		}
	}
}
