package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/test/kit/debeziumtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A debeziumWorker is a real Debezium in its own Connect worker. It reads the outbox of a rig.
type debeziumWorker struct {
	*rig.Process

	rig     *rig.Rig
	install debezium.Install
	dir     string
	rest    string // URL of the connector in the worker's REST API
	config  string // path of the connector's JSON
	worker  string // path of the worker's properties
	offsets string // path of the worker's offsets
}

const connectorName = "orders"

// newDebezium prepares a worker that reads r's outbox with the given output plugin.
func newDebezium(t *testing.T, r *rig.Rig, plugin string) *debeziumWorker {
	t.Helper()
	install := debeziumtest.Need(t)
	port, err := serverproc.ReservePort()
	rig.Must(t, err)
	t.Cleanup(port.Close)
	d := &debeziumWorker{rig: r, install: install, dir: t.TempDir(), rest: "http://" + port.Addr() + "/connectors/" + connectorName}
	rig.Must(t, install.Plugins(filepath.Join(d.dir, "plugins")))
	d.offsets = filepath.Join(d.dir, "offsets.dat")
	d.worker = d.file(t, "worker.properties", fmt.Sprintf(`bootstrap.servers=%s
listeners=http://%s
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=%s
offset.flush.interval.ms=2000
plugin.path=%s
plugin.discovery=service_load
`, r.Kafka.Addrs[0], port.Addr(), d.offsets, filepath.Join(d.dir, "plugins")))
	conn := r.DB.Config(t)
	config, err := json.MarshalIndent(map[string]any{"name": connectorName, "config": map[string]string{
		"connector.class":                     "io.debezium.connector.postgresql.PostgresConnector",
		"tasks.max":                           "1",
		"database.hostname":                   conn.Host,
		"database.port":                       fmt.Sprint(conn.Port),
		"database.user":                       conn.User,
		"database.password":                   conn.Password,
		"database.dbname":                     conn.Database,
		"database.sslmode":                    "disable",
		"topic.prefix":                        "shop",
		"plugin.name":                         plugin,
		"slot.name":                           r.Slot,
		"publication.name":                    rig.Publication,
		"publication.autocreate.mode":         "filtered",
		"table.include.list":                  `public\.outbox`,
		"snapshot.mode":                       "no_data",
		"transforms":                          "outbox",
		"transforms.outbox.type":              "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.regex": "order",
		"transforms.outbox.route.topic.replacement":           r.Topic,
		"transforms.outbox.table.fields.additional.placement": "type:header:eventType",
	}}, "", "  ")
	rig.Must(t, err)
	d.config = d.file(t, "connector.json", string(config))
	return d
}

func (d *debeziumWorker) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	rig.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// start starts the worker and waits until it streams.
func (d *debeziumWorker) start(t *testing.T) {
	t.Helper()
	cmd := d.install.Command(d.worker, d.config)
	d.Process = rig.StartProgram(t, cmd.Path, cmd.Args[1:]...)
	d.streams(t, true)
}

// streams waits until a process uses the slot, or until none does.
func (d *debeziumWorker) streams(t *testing.T, want bool) {
	t.Helper()
	conn := d.rig.Connect(t)
	wait.For(t, fmt.Sprintf("the slot's state to be active=%t", want), func() bool {
		return rig.Ask[bool](t, conn, `SELECT count(*) > 0 FROM pg_replication_slots WHERE slot_name = $1 AND active`, d.rig.Slot) == want
	})
}

// call sends a request about the connector to the worker's REST API, and returns the response.
func (d *debeziumWorker) call(t *testing.T, method, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.rest+path, http.NoBody)
	rig.Must(t, err)
	resp, err := http.DefaultClient.Do(req)
	rig.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return string(body)
}

// succeed runs a verb, which must succeed, and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	out, code := rig.Command(t, args...)
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// takeOver imports Debezium's configuration and runs the relay on its slot.
func (d *debeziumWorker) takeOver(t *testing.T, offsets string) *rig.Process {
	t.Helper()
	config := filepath.Join(d.dir, "outbox-cdc.yaml")
	succeed(t, "import", "debezium", d.config, "--worker", d.worker, "--offsets", offsets, "-o", config)
	return d.runBehind(t, config, offsets)
}

var skipTo = regexp.MustCompile(`--skip-to [0-9A-F]+/[0-9A-F]+`)

// runBehind runs the relay with the position that check prints, after the last row that Debezium has sent.
func (d *debeziumWorker) runBehind(t *testing.T, config, offsets string) *rig.Process {
	t.Helper()
	told := succeed(t, "check", "--takeover", "-c", config, "--offsets", offsets)
	t.Log(told)
	process := rig.Start(t, append([]string{"run", "-c", config}, strings.Fields(skipTo.FindString(told))...)...)
	process.Logged(t, "streaming")
	d.rig.Progress(t)
	return process
}

// An operator stops Debezium in the documented way, and the relay continues where Debezium has stopped.
// Then Debezium continues where the relay has stopped, according to the printed rollback plan. The load
// continues meanwhile. No row is lost or out of order. The only duplicates are from a transaction in which
// Debezium stopped.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	r, _, _ := rig.NewOwnBroker(t) // a broker of its own, because the connector's name is the key of the position record
	d := newDebezium(t, r, "pgoutput")
	d.start(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)

		d.call(t, http.MethodPut, "/stop")
		d.streams(t, false)
		offsets := d.file(t, "offsets.json", d.call(t, http.MethodGet, "/offsets"))
		process := d.takeOver(t, offsets)
		process.Terminate(t)

		plan, code := rig.Command(t, "import", "debezium", d.config, "--worker", d.worker, "--rollback-plan")
		for _, step := range []string{"DELETE", "/connectors/" + connectorName + "/offsets", "/connectors/" + connectorName + "/resume"} {
			if code != 0 || !strings.Contains(plan, step) {
				t.Errorf("exit code %d, %q is not in the plan:\n%s", code, step, plan)
			}
		}
		d.call(t, http.MethodDelete, "/offsets")
		d.call(t, http.MethodPut, "/resume")
		d.streams(t, true)
		r.Progress(t)
	})
	r.Arrived(t)
	d.Signal(t, syscall.SIGTERM)
	<-d.Done
	r.Settle(t, r.Load.MaxRows)
}

// Debezium is killed. The only duplicates are from transactions that Debezium has sent without storing
// their offset.
func TestTakeOverFromKilled(t *testing.T) {
	t.Parallel()
	r, _, _ := rig.NewOwnBroker(t) // a broker of its own, because the connector's name is the key of the position record
	d := newDebezium(t, r, "pgoutput")
	d.start(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		wait.For(t, "the worker to store offsets", func() bool {
			_, err := os.Stat(d.offsets)
			return err == nil
		})
		r.Progress(t)
		d.Kill(t)
		d.streams(t, false)
		process := d.takeOver(t, d.offsets)
		process.Terminate(t)

		d.Kill(t)
		rig.Must(t, os.Remove(d.offsets)) // as the rollback plan says for a worker that stores offsets in a file
		d.start(t)
		r.Progress(t)
	})
	r.Arrived(t)
	d.Signal(t, syscall.SIGTERM)
	<-d.Done
	r.Settle(t, rig.Unconfirmed)
}

// serverWith starts a server whose installation has the output plugin.
func serverWith(t *testing.T, plugin string) *pgserver.Server {
	t.Helper()
	need.FullRun(t, "it needs Debezium")
	for _, i := range pgserver.Installed(t.Context()) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(i.BinDir), "lib", plugin+".so")); err == nil {
			return pgtest.Start(t, pgserver.Config{BinDir: i.BinDir})
		}
	}
	need.Missing(t, "no Postgres with the plugin %s", plugin)
	return nil
}

// The relay cannot use a slot with another output plugin. It gets its own slot, and starts after the last
// row that Debezium has sent, if that is past the start of the new slot.
func TestTakeOverFromAnotherPlugin(t *testing.T) {
	t.Parallel()
	const plugin = "decoderbufs"
	r := rig.NewOn(t, rig.DatabaseOn(t, serverWith(t, plugin)), kafkatest.Start(t, kafkatest.Config{}).Cluster)
	d := newDebezium(t, r, plugin)
	d.start(t)
	config := filepath.Join(d.dir, "outbox-cdc.yaml")
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		if out, code := rig.Command(t, "import", "debezium", d.config, "--worker", d.worker, "-o", config); code != 2 || !strings.Contains(out, "plugin.name") {
			t.Errorf("import: exit code %d\n%s", code, out)
		}
		succeed(t, "import", "debezium", d.config, "--worker", d.worker, "--new-slot", r.Slot+"_cdc", "-o", config)
		made := regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+`).FindString(succeed(t, "setup", "-c", config))
		conn := r.Connect(t)
		wait.For(t, "Debezium to be past "+made, func() bool {
			sent := regexp.MustCompile(`"lsn_commit":(\d+)`).FindStringSubmatch(d.call(t, http.MethodGet, "/offsets"))
			return sent != nil && rig.Ask[bool](t, conn, `SELECT $1::text::numeric >= $2::pg_lsn - '0/0'`, sent[1], made)
		})

		d.call(t, http.MethodPut, "/stop")
		d.streams(t, false)
		offsets := d.file(t, "offsets.json", d.call(t, http.MethodGet, "/offsets"))
		d.runBehind(t, config, offsets)
		r.Progress(t)
		r.DB.Exec(t, "SELECT pg_drop_replication_slot('"+r.Slot+"')")
	})
	r.Arrived(t)
	r.Settle(t, r.Load.MaxRows)
}
