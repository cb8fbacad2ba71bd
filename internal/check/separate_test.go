package check

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// The check warns if rows can select the relay's own topics. It suggests the commands that separate them.
func TestSeparation(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	fake := kafkatest.Fake(t)
	t.Run("a row chooses the topic", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", "${route}")
		r.db.Exec(t, `UPDATE outbox SET aggregatetype = $1`, r.topic)
		c := r.unmet(t)["destinations"]
		if c.State != Doubt || !strings.Contains(c.Fix, "--operation Describe --operation Write --operation Read --topic "+r.positions) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a rule may rewrite it", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", "a.${route}")
		r.set("outbox.topic_rules", "[{match: '.*', replace: "+r.topic+"}]")
		expect(t, r, broken{title: "destinations", state: Doubt, says: "outbox.topic_rules", mend: func(*testing.T, *rig) {
			r.more = nil
		}})
	})
	t.Run("a prefix", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", r.topic+"${route}")
		r.db.Exec(t, `UPDATE outbox SET aggregatetype = ''`)
		if unmet := r.unmet(t); len(unmet) > 0 {
			t.Errorf("%+v", unmet)
		}
	})
}

// The rights in docs/security.md separate relays: each can write only to its own topics.
func TestDocumentedSeparation(t *testing.T) {
	t.Parallel()
	users := map[string]string{"orders": "orders-secret", "payments": "payments-secret"}
	broker := kafkatest.Start(t, kafkatest.Config{
		Users: users,
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Separate relays by ACLs")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/security.md has no commands")
	}
	kafkatest.RunCommand(t, "set -e; BROKERS="+broker.Addrs[0]+"\n"+block)
	topics := []string{"orders.event.order", "orders.positions", "orders.dead-letter"}
	for _, topic := range topics {
		broker.CreateTopic(t, topic, 1, nil)
	}
	for name, password := range users {
		login := kgo.SASL(scram.Auth{User: name, Pass: password}.AsSha256Mechanism())
		cl := (&kafkatest.Cluster{Addrs: []string{broker.SASLAddr()}}).Client(t, login)
		for _, topic := range topics {
			err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k")}).FirstErr()
			if allowed := name == "orders"; (err == nil) != allowed || !allowed && !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Errorf("%s writes to %s: %v", name, topic, err)
			}
		}
	}
}
