package conformance

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// An audit with the imported configuration finds nothing beside a running Debezium, while rows are written, and
// nothing but duplicates after the migration. It finds a record that was altered.
func TestAuditBesideDebezium(t *testing.T) {
	t.Parallel()
	r, _, _ := rig.NewOwnBroker(t) // a broker of its own, because the connector's name is the key of the position record
	d := newDebezium(t, r, "pgoutput")
	d.start(t)
	config := filepath.Join(d.dir, "outbox-cdc.yaml")
	succeed(t, "import", "debezium", d.config, "--worker", d.worker, "-o", config)
	r.Load.Run(t.Context(), t, 500)
	r.Arrived(t)
	delivered := time.Now().UTC().Format(time.RFC3339Nano)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		if out := succeed(t, "audit", "-c", config, "--until", delivered, "--assume-confirmed"); !strings.Contains(out, "confirmed by: assumed") {
			t.Errorf("the rows until %s:\n%s", delivered, out)
		}
		if out := succeed(t, "audit", "-c", config); !strings.Contains(out, "confirmed by: slot") { // Debezium confirms every 2 s
			t.Errorf("all rows:\n%s", out)
		}
		d.call(t, http.MethodPut, "/stop")
		d.streams(t, false)
		d.runBehind(t, config, d.file(t, "offsets.json", d.call(t, http.MethodGet, "/offsets")))
	})
	r.Arrived(t)
	r.Settle(t, r.Load.MaxRows)
	t.Log(succeed(t, "audit", "-c", config, "--allow", "duplicate"))

	first := r.Kafka.ReadAll(t, r.Topic)[0]
	altered := &kgo.Record{Topic: first.Topic, Key: first.Key, Value: append([]byte("x"), first.Value...), Headers: first.Headers, Timestamp: first.Timestamp}
	rig.Must(t, r.Kafka.Client(t).ProduceSync(t.Context(), altered).FirstErr())
	if out, code := rig.Command(t, "audit", "-c", config, "--allow", "duplicate"); code != 1 || !strings.Contains(out, "altered: "+r.Topic) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
