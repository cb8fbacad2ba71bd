package debezium

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

func target() measure.Target {
	return measure.Target{
		DSN: "postgres://cdc:open%20sesame@db.example:5433/shop?sslmode=disable", Publication: "pub", Slot: "slot",
		Schema: "bench_a", Table: "outbox", TopicPrefix: "bench-a.",
	}
}

// configured returns the files of the worker and the connector.
func configured(t *testing.T, c measure.Contender) (workerText, connectorText string) {
	t.Helper()
	w, ok := c.(worker)
	if !ok {
		t.Fatalf("a %T", c)
	}
	dir := t.TempDir()
	if err := w.configure(target(), dir); err != nil {
		t.Fatal(err)
	}
	if jars, err := os.Readlink(filepath.Join(dir, pluginsDir, "debezium")); err != nil || jars != "/jars/debezium" {
		t.Errorf("plugin is %q: %v", jars, err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), dir, "DIR")
	}
	return read(workerFile), read(connectorFile)
}

const (
	workerDefault = `bootstrap.servers=k1:9092,k2:9092
key.converter=org.apache.kafka.connect.storage.StringConverter
listeners=http://127.0.0.1:0
offset.storage.file.filename=DIR/offsets.dat
plugin.discovery=service_load
plugin.path=DIR/plugins
producer.acks=all
producer.compression.type=lz4
value.converter=org.apache.kafka.connect.storage.StringConverter
`
	connectorDefault = `connector.class=io.debezium.connector.postgresql.PostgresConnector
database.dbname=shop
database.hostname=db.example
database.password=open sesame
database.port=5433
database.sslmode=disable
database.user=cdc
name=bench
plugin.name=pgoutput
publication.autocreate.mode=disabled
publication.name=pub
slot.name=slot
snapshot.mode=no_data
table.include.list=bench_a\\.outbox
tasks.max=1
tombstones.on.delete=false
topic.prefix=bench
transforms=outbox
transforms.outbox.route.topic.replacement=bench-a.${routedByValue}
transforms.outbox.table.expand.json.payload=false
transforms.outbox.table.fields.additional.placement=type:header:eventType
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
`
)

func TestDefaultIsDebeziumsOwn(t *testing.T) {
	install := Install{[]string{"k1:9092", "k2:9092"}, "java", "/jars/connect", "/jars/debezium"}
	w, c := configured(t, install.Default("lz4"))
	if diff := cmp.Diff(workerDefault, w); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(connectorDefault, c); diff != "" {
		t.Error(diff)
	}
}

// TestTunedChangesOnlyTheTuning removes the tuning and compares the rest with the default.
func TestTunedChangesOnlyTheTuning(t *testing.T) {
	install := Install{[]string{"k1:9092", "k2:9092"}, "java", "/jars/connect", "/jars/debezium"}
	w, c := configured(t, install.Tuned("lz4"))
	for _, line := range []string{"offset.flush.interval.ms=1000\n", "producer.linger.ms=0\n"} {
		w = strings.Replace(w, line, "", 1)
	}
	for _, line := range []string{"poll.interval.ms=5\n", "max.batch.size=8192\n", "max.queue.size=32768\n"} {
		c = strings.Replace(c, line, "", 1)
	}
	if diff := cmp.Diff(workerDefault+connectorDefault, w+c); diff != "" {
		t.Error(diff)
	}
}

func TestUnixSocketsAreRefused(t *testing.T) {
	w := worker{name: DefaultName}
	tgt := target()
	tgt.DSN = "host=/run/postgresql user=cdc dbname=shop"
	if _, err := w.connectorProperties(tgt); err == nil || !strings.Contains(err.Error(), "Unix sockets") {
		t.Errorf("connectorProperties: %v", err)
	}
}
