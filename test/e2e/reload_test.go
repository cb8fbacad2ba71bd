package e2e

import (
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A reloaded is a relay whose secrets stand in its configuration file, so that it does not see
// new ones by itself.
type reloaded struct {
	*secured
	*rig.Process
	kafka *kafkatest.FakeCluster
	admin *kadm.Client
	file  string
	next  int64 // offset

	values map[string]string
}

func startReloaded(t *testing.T) *reloaded {
	t.Helper()
	r := &reloaded{
		secured: startSecured(t, "pg-one"),
		kafka: kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
			kfake.Superuser("SCRAM-SHA-256", "relay", "kafka-one"), kfake.Superuser("SCRAM-SHA-256", "admin", "admin")),
	}
	asAdmin := kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism())
	r.admin = kadm.NewClient(r.kafka.Client(t, asAdmin))
	r.values = map[string]string{"DSN": r.dsn("pg-one"), "PASSWORD": "kafka-one", "LEVEL": "info", "TOPIC": "${route}"}
	r.file = writeFile(t, "outbox-cdc.yaml", nil)
	r.configure(t, nil)
	if out, code := rig.Command(t, "setup", "-c", r.file); code != 0 {
		t.Fatal(out)
	}
	r.Process = rig.Start(t, "run", "-c", r.file)
	r.Logged(t, "streaming")
	return r
}

// configure writes the file, with changes.
func (r *reloaded) configure(t *testing.T, changes map[string]string) {
	t.Helper()
	text := `
source: {dsn: "DSN", publication: outbox_cdc, slot: outbox_cdc}
outbox: {topic: "TOPIC"}
sink:
  kafka:
    brokers: ["BROKER"]
    create_topics: {partitions: 1}
    sasl: {mechanism: SCRAM-SHA-256, user: relay, password: "PASSWORD"}
log: {level: LEVEL}
`
	r.values["BROKER"] = r.kafka.Addrs[0]
	maps.Copy(r.values, changes)
	for name, value := range r.values {
		text = strings.ReplaceAll(text, name, value)
	}
	rig.Must(t, os.WriteFile(r.file, []byte(text), 0o600))
}

// reload sends the signal and waits for the line that follows.
func (r *reloaded) reload(t *testing.T, line string) {
	t.Helper()
	before := r.Times(line)
	r.Signal(t, syscall.SIGHUP)
	r.LoggedTimes(t, line, before+1)
}

// arrives demands that a row is delivered.
func (r *reloaded) arrives(t *testing.T) {
	t.Helper()
	r.write(t)
	r.awaits(t)
}

func (r *reloaded) awaits(t *testing.T) {
	t.Helper()
	r.next++
	wait.For(t, "a record", func() bool {
		ends, err := r.admin.ListEndOffsets(t.Context(), "orders")
		rig.Must(t, err)
		end, _ := ends.Lookup("orders", 0)
		return end.Offset >= r.next
	})
}

// Passwords that stand in the configuration file are refused after they were changed at the
// servers and in the file, until SIGHUP; with that the same process goes on.
func TestReloadSecrets(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for lost sessions")
	r := startReloaded(t)
	r.arrives(t)

	r.db.Exec(t, "ALTER ROLE cdc PASSWORD 'pg-two'")
	r.configure(t, map[string]string{"DSN": r.dsn("pg-two")})
	r.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	r.Logged(t, "28P01")
	r.reload(t, `msg="configuration reloaded" changed=source.dsn`)
	r.arrives(t)

	_, err := r.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "relay", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "kafka-two"},
	})
	rig.Must(t, err)
	r.configure(t, map[string]string{"PASSWORD": "kafka-two"})
	r.kafka.HangUp("orders")
	r.write(t)
	r.Logged(t, "broker rejects the connection")
	r.reload(t, `msg="configuration reloaded" changed=sink.kafka.sasl.password`)
	r.awaits(t)
	r.Terminate(t)
	if out := r.Stderr.String(); strings.Contains(out, "pg-two") || strings.Contains(out, "kafka-two") || strings.Count(out, "msg=starting") != 1 {
		t.Errorf("a password is in the log, or the relay was started again:\n%s", out)
	}
}

// What only counts after a restart is named and left; a file that cannot be loaded changes nothing;
// the level of the log changes at once.
func TestReloadTheRest(t *testing.T) {
	need.FullRun(t, "internal/config tests what a reload changes")
	t.Parallel()
	r := startReloaded(t)
	r.arrives(t)
	r.reload(t, `msg="configuration reloaded" changed=""`)

	r.configure(t, map[string]string{"TOPIC": "elsewhere"})
	r.reload(t, `changed="" needs_restart=outbox.topic`)
	r.arrives(t)
	r.configure(t, map[string]string{"TOPIC": "${route}", "DSN": strings.Replace(r.dsn("pg-two"), "127.0.0.1", "localhost", 1)})
	r.reload(t, `changed="" needs_restart=source.dsn`)
	r.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	r.arrives(t) // with the old one

	rig.Must(t, os.WriteFile(r.file, []byte("source: {dsn: [c4n4ry"), 0o600))
	r.reload(t, `level=ERROR msg="configuration not reloaded: what was in force stays"`)
	r.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	r.arrives(t)

	r.configure(t, map[string]string{"DSN": r.dsn("pg-one"), "LEVEL": "error"})
	r.reload(t, `changed=log.level`)
	before := r.Times("level=INFO")
	r.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	r.arrives(t)
	if after := r.Times("level=INFO"); after != before {
		t.Errorf("%d lines of level INFO, there were %d", after, before)
	}
	r.configure(t, map[string]string{"LEVEL": "info"})
	r.reload(t, `changed=log.level`)
	sessions := r.Times("msg=streaming")
	r.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	r.LoggedTimes(t, "msg=streaming", sessions+1)
	r.arrives(t)
	r.Terminate(t)
	if out := r.Stderr.String(); strings.Contains(out, "c4n4ry") {
		t.Errorf("the file is in the log:\n%s", out)
	}
}
