package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

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

// TestTokens of a real broker: good, expired and not a token; and when a session ends, the
// broker gets another token over the same connection.
func TestTokens(t *testing.T) {
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
		began := time.Now()
		err := roundTrip(t, cfg(bearerLogin(token)), topic, 5*time.Second)
		if !errors.Is(err, sink.ErrAccess) || time.Since(began) > 3*time.Second || strings.Contains(fmt.Sprint(err), expired) {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
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
	r.waitAcked(1)
	connections, tokens := dials.Load(), asked.Load()
	for n := 2; asked.Load() < tokens+2; n++ {
		r.send(recordFor(topic, 0, "x"))
		r.waitAcked(n)
		time.Sleep(session / 10)
	}
	r.mustDrain()
	if more := dials.Load() - connections; more > 0 {
		t.Errorf("%d connections were made for it", more)
	}
}

// TestSecretErrors: what comes before a login is told apart as the login itself is.
func TestSecretErrors(t *testing.T) {
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
			began := time.Now()
			err := roundTrip(t, Config{Brokers: k.Addrs, SASL: &SASL{Mechanism: "PLAIN", User: "alice", Secret: tc.secret}}, "t", 200*time.Millisecond)
			if !errors.Is(err, tc.is) || time.Since(began) > 2*time.Second {
				t.Errorf("Open: %v after %s, want %v", err, time.Since(began), tc.is)
			}
			if _, ok := errors.AsType[sink.Advised](err); !ok {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

// TestSecretReplaced: the password is changed on the cluster and in our hands while records
// flow, and the next login uses it. Until then it is refused, and loudly so.
func TestSecretReplaced(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "t"),
		kfake.Superuser("SCRAM-SHA-256", "alice", password), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
	var current atomic.Value
	current.Store(password)
	r := newRig(t, Config{Brokers: k.Addrs, SASL: &SASL{
		Mechanism: "SCRAM-SHA-256", User: "alice",
		Secret: func(context.Context) (string, error) { return current.Load().(string), nil },
	}})
	r.send(recordFor("t", 0, "x"))
	r.waitAcked(1)

	const next = "another-canary-07b1"
	admin := kadm.NewClient(k.Client(t, kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism())))
	if _, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: next},
	}); err != nil {
		t.Fatal(err)
	}
	k.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // the connection ends
		return nil, errors.New("dropped"), true
	})
	r.send(recordFor("t", 0, "y"))
	r.producer.Flush()
	r.wait("the refusal", func() bool {
		signal(r.changed)
		return strings.Contains(r.journal.String(), "broker refuses the connection")
	})
	current.Store(next)
	r.mustDrain()
	if s := r.journal.String(); strings.Contains(s, password) || strings.Contains(s, next) {
		t.Errorf("a password is in %s", s)
	}
}
