package check

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// What lets rows or other relays reach a relay's own topics is told, with the commands that separate them.
func TestSeparation(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	fake := kafkatest.Fake(t)
	t.Run("a row chooses the topic", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", "${route}")
		r.db.Exec(t, `UPDATE outbox SET aggregatetype = $1`, r.topic)
		c := r.look(t)["topic names"]
		if c.State != Doubt || !strings.Contains(c.Fix, "--operation Describe --operation Write --operation Read --topic "+r.positions) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a rule may rewrite it", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", "a.${route}")
		r.set("outbox.topic_rules", "[{match: '.*', replace: "+r.topic+"}]")
		expect(t, r, broken{title: "topic names", state: Doubt, says: "outbox.topic_rules", mend: func(*testing.T, *rig) {
			r.more = nil
		}})
	})
	t.Run("a prefix", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		r.set("outbox.topic", r.topic+"${route}")
		r.db.Exec(t, `UPDATE outbox SET aggregatetype = ''`)
		if unmet := r.look(t); len(unmet) > 0 {
			t.Errorf("%+v", unmet)
		}
	})
	t.Run("another relay's position", func(t *testing.T) {
		r := whole(t, srv, fake.Cluster)
		value := func(key string, value []byte) {
			t.Helper()
			if err := fake.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: r.positions, Key: []byte(key), Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		const writer = "/8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"
		value(r.db.Name+writer, []byte(`{}`))
		value("payments"+writer, []byte(`{}`))
		value("gone"+writer, []byte(`{}`))
		value("gone"+writer, nil)
		expect(t, r, broken{
			title: "other relays POSITIONS", state: Doubt, says: "payments keep their positions there too",
			mend: func(t *testing.T, _ *rig) {
				t.Helper()
				value("payments"+writer, nil)
			},
		})
	})
}
