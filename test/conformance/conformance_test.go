package conformance

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const corpus = "testdata"

// smoke is the number of cases in a run that is not a full one.
const smoke = 3

// For each recorded case, the test imports Debezium's configuration unchanged, runs the binary with the
// result, and compares its records with the recording. With --exact it compares everything, otherwise
// everything except the headers about the connector. deviations lists what happens in the other cases.
//
// OUTBOX_CDC_CONFORMANCE_DIR is a directory of cases that replace the built-in ones.
func TestConformance(t *testing.T) {
	dir, foreign := os.LookupEnv("OUTBOX_CDC_CONFORMANCE_DIR")
	if !foreign {
		dir = corpus
	}
	rig.Must(t, os.Unsetenv("OUTBOX_CDC_CONFORMANCE_DIR")) // the relay would take it for a configuration key
	cases, err := load(os.DirFS(dir))
	rig.Must(t, err)
	if !foreign && !need.Full() {
		cases = cases[:smoke]
	}
	known := map[string]map[string]deviation{}
	if !foreign {
		known = maps.Clone(deviations)
	}
	for _, c := range cases {
		instead := known[c.name]
		delete(known, c.name)
		if foreign && c.failure != "" {
			instead = map[string]deviation{"exact": {does: reported}, "plain": {does: reported}}
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, profile := range []string{"exact", "plain"} {
				t.Run(profile, func(t *testing.T) {
					t.Parallel()
					conforms(t, c, instead[profile], profile == "exact")
				})
			}
		})
	}
	for name := range known {
		if !need.Full() {
			break
		}
		t.Errorf("%s is listed as a deviation and is no case", name)
	}
}

// conforms runs one case.
func conforms(t *testing.T, c *recordedCase, d deviation, exact bool) {
	t.Helper()
	db := pgtest.Database(t)
	if err := c.setup.run(t.Context(), db.DSN); err != nil {
		if strings.Contains(err.Error(), "extension") {
			need.Missing(t, "the extension the case is about: %v", err)
		}
		t.Fatal(err)
	}
	fake := kafkatest.Fake(t)
	for _, topic := range c.topics {
		fake.CreateTopic(t, topic.name, topic.partitions, nil)
	}
	out := attempt(t, c, db, fake.Cluster, exact)
	out.verify(t, c, d)
}

// An outcome is the result of a case.
type outcome struct {
	exact   bool // imported with --exact
	refused bool // by import
	code    int  // of import or run
	output  string
	records []Record
	run     run
}

// attempt imports the case's configuration, runs the binary with it and writes the case's rows.
func attempt(t *testing.T, c *recordedCase, db *pgtest.DB, cluster *kafkatest.Cluster, exact bool) (o outcome) {
	t.Helper()
	o.exact = exact
	var flags []string
	if exact {
		flags = append(flags, "--exact")
	}
	if o.runImported(t, c, db, cluster, flags); !o.refused {
		o.records = written(t, cluster)
	}
	return o
}

// runImported imports the case's configuration with flags of import, runs the binary with it and with flags of run, and writes
// the case's rows.
func (o *outcome) runImported(t *testing.T, c *recordedCase, db *pgtest.DB, cluster *kafkatest.Cluster, importFlags []string, runFlags ...string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	o.output, o.code = importCase(t, c, db, cluster, config, importFlags...)
	if o.code != 0 {
		o.refused = true
		return
	}
	slot := rig.SlotPrefix + strconv.FormatInt(time.Now().UnixNano(), 36) // another test may use the case's own slot name
	o.run.began = time.Now()
	process := rig.Start(t, append([]string{"run", "-c", config, "--slot", slot}, runFlags...)...)
	wait.For(t, "the relay to stream or end", func() bool {
		return process.Ended() || strings.Contains(process.Stderr.String(), "msg=streaming")
	})
	if !process.Ended() {
		rig.Must(t, c.rows.run(t.Context(), db.DSN))
		o.awaitConfirmed(t, process, db, slot)
	}
	o.code = process.Exit(t)
	o.run.ended = time.Now()
	o.output = process.Stderr.String()
}

// importCase imports the case's configuration to a file, for the given database and cluster. If the tables are an
// expression, it follows the advice to look them up in the database.
func importCase(t *testing.T, c *recordedCase, db *pgtest.DB, cluster *kafkatest.Cluster, config string, args ...string) (output string, code int) {
	t.Helper()
	dir := t.TempDir()
	conn := db.Config(t)
	env := environment{
		"PGHOST": conn.Host, "PGPORT": strconv.Itoa(int(conn.Port)), "PGUSER": conn.User, "PGPASSWORD": conn.Password, "PGDATABASE": conn.Database,
		"KAFKA_BOOTSTRAP": cluster.Addrs[0], "WORKDIR": dir, "PLUGIN_PATH": dir,
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		rig.Must(t, os.WriteFile(path, []byte(env.fill(text)), 0o600))
		return path
	}
	args = append([]string{"import", "debezium", file(c.configFile, c.config), "-o", config}, args...)
	if c.configFile == connectConfig {
		args = append(args, "--worker", file("worker.properties", c.worker))
	}
	if output, code = rig.Command(t, args...); strings.Contains(output, "run this command with --live") {
		return rig.Command(t, append(args, "--live")...)
	}
	return output, code
}

// awaitConfirmed waits until the relay has confirmed all WAL, then stops it. It returns early if the relay
// stops by itself.
func (o *outcome) awaitConfirmed(t *testing.T, process *rig.Process, db *pgtest.DB, slot string) {
	t.Helper()
	rig.AwaitConfirmedOr(t, db.Conn(t), slot, process.Ended)
	process.Signal(t, syscall.SIGTERM)
}

// written returns the records in all topics of a cluster except the relay's own. Their offsets count the records of a
// partition.
func written(t *testing.T, cluster *kafkatest.Cluster) (records []Record) {
	t.Helper()
	topics, err := cluster.Admin(t).ListTopics(context.WithoutCancel(t.Context()))
	rig.Must(t, err)
	var names []string
	for _, name := range topics.Names() {
		if name != position.DefaultTopic {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	type partition struct {
		topic string
		n     int32
	}
	read := make(map[partition]int64)
	for _, r := range cluster.ReadAll(t, names...) {
		record := conformanceRecord(r)
		at := partition{r.Topic, r.Partition}
		record.Offset = read[at] // an abort marker of the relay has an offset too
		read[at]++
		records = append(records, record)
	}
	return records
}

func conformanceRecord(r *kgo.Record) Record {
	rec := Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, Header{Name: h.Key, Value: h.Value})
	}
	return rec
}

func TestMain(m *testing.M) { rig.Main(m) }
