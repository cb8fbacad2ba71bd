package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A program that is no relay uses the relay's transactional id again and again. The relay, which holds the slot, logs the id and what to
// do, at most once a minute, and becomes the owner again in one session each time. It stores each row once.
func TestAnotherProgramUsesTheTransactionalID(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := watchDatabase(t, pgtest.Database(t), fake.Cluster, `CREATE TABLE outbox `+outboxColumns)
	w.cfg.Positions = position.Place{Topic: position.DefaultTopic}
	w.run(t).delivers(t, "outbox")
	const times = 2
	id := kafka.TransactionalID(position.DefaultTopic, w.cfg.Name)
	for range times {
		_, _, err := fake.Client(t, kgo.TransactionalID(id)).ProducerID(t.Context())
		rig.Must(t, err)
		w.delivers(t, "outbox")
	}
	w.stop()
	rig.Must(t, <-w.ended)
	if got := len(fake.ReadAll(t, w.topic)); got != 1+times {
		t.Errorf("%d records, want each row once", got)
	}
	lines := 0
	for line := range strings.Lines(w.log.String()) {
		if !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR") || strings.Contains(line, "is a superuser") {
			continue
		}
		lines++
		if !strings.Contains(line, "fenced, taking") || strings.Count(line, "transactional id "+id) != 2 || !strings.Contains(line, "Stop it") {
			t.Errorf("logged: %s", line)
		}
	}
	if sessions := strings.Count(w.log.String(), "msg=streaming"); lines != 1 || sessions != 1+times {
		t.Errorf("%d warnings and %d sessions:\n%s", lines, sessions, &w.log)
	}
}
