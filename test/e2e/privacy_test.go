package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// canary is part of every secret, and of every value of a row except its id.
const canary = "c4n4ry"

// secretOf returns a distinct secret.
func secretOf(of string) string { return canary + "-" + of }

// A confidant runs the binary in many ways and searches everything it prints.
type confidant struct {
	*secured
	kafka  *kafkatest.FakeCluster
	output map[string]string // by the step that produced it
}

// Whatever succeeds or fails, neither a secret nor any byte of a row's key, payload or headers appears in
// a log line, an error, a goroutine dump or other output.
func TestPrivacy(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it searches all output of long runs")
	c := &confidant{
		secured: startSecured(t, secretOf("pg")),
		kafka: kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
			kfake.Superuser("PLAIN", "relay", secretOf("kafka"))),
		output: make(map[string]string),
	}
	rig.Must(t, c.kafka.Control.CreateTopic("dead", 1, map[string]string{"max.message.bytes": "10000000"}))
	if out, code := rig.Command(t, "setup", "-c", c.config(t, nil)); code != 0 {
		t.Fatal(out)
	}
	c.db.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_headers_check") // other outbox tables have no such constraint
	c.delivers(t)
	c.stops(t)
	c.refused(t)
	c.mistakes(t)
	c.prints(t)

	for _, form := range []string{
		canary, hex.EncodeToString([]byte(canary)), // as Postgres prints bytea
		base64.StdEncoding.EncodeToString([]byte(canary)), fmt.Sprintf("%d", []byte(canary)), // as %v prints bytes
	} {
		for _, what := range slices.Sorted(maps.Keys(c.output)) {
			for line := range strings.Lines(c.output[what]) {
				if strings.Contains(line, form) {
					t.Errorf("%s: %s", what, line)
				}
			}
		}
	}
}

// config writes a configuration file that has a secret wherever one is possible, and applies changes.
func (c *confidant) config(t *testing.T, with map[string]string) (path string) {
	t.Helper()
	values := map[string]string{
		"dsn": c.dsn(secretOf("pg"), "&options=-c%20app.token%3D"+secretOf("option")), "password": secretOf("kafka"), "on_bad_record": "stop", "more": "",
	}
	maps.Copy(values, with)
	return yamlFile(t, `
source: {dsn: %q, publication: outbox_cdc, slot: outbox_cdc}
outbox: {topic: "${route}"}
sink:
  kafka:
    brokers: [%q]
    create_topics: {partitions: 1}
    sasl: {mechanism: PLAIN, user: relay, password: %q}
on_bad_record: %s
dead_letter_topic: dead
log: {level: debug}
%s
`, values["dsn"], c.kafka.Addrs[0], values["password"], values["on_bad_record"], values["more"])
}

// row inserts an event with the canary in every column except its id.
func (c *confidant) row(t *testing.T, topic string, headers any, pad int) {
	t.Helper()
	c.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
		VALUES (gen_random_uuid(), $1, $2, $2, jsonb_build_object('p', $2 || repeat('x', $4)), $3::jsonb)`,
		topic, canary+" key", headers, pad)
}

// delivers sends valid rows to their topic and bad ones to the dead-letter topic, and finally dumps the
// goroutines.
func (c *confidant) delivers(t *testing.T) {
	t.Helper()
	process := rig.Start(t, "run", "-c", c.config(t, map[string]string{"on_bad_record": "dead-letter"}))
	process.Logged(t, "streaming")
	c.row(t, "orders", `{"h": "`+canary+`"}`, 10)
	c.row(t, canary+" is no topic", nil, 0)
	c.row(t, "orders", `["`+canary+`"]`, 0)
	c.row(t, "orders", nil, 3_000_000)
	rig.AwaitConfirmed(t, c.db.Conn(t), "outbox_cdc")
	process.Logged(t, "rows replaced by dead letters")
	c.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	wait.For(t, "the next session", func() bool { return strings.Count(process.Stderr.String(), "msg=streaming") == 2 })
	for _, path := range adminPaths {
		_, c.output["GET /"+path] = process.Ask(t, path)
	}
	process.Signal(t, syscall.SIGQUIT)
	process.Exit(t)
	out := process.Stderr.String()
	if !strings.Contains(out, "goroutine ") {
		t.Errorf("no dump:\n%s", rig.Tail(out, 20))
	}
	c.output["delivers"] = out
}

// stops runs a relay for each kind of row that cannot be delivered, in both log formats.
func (c *confidant) stops(t *testing.T) {
	t.Helper()
	conn := c.db.Conn(t)
	for name, tc := range map[string]struct {
		spoil func()
		code  int
	}{
		"topic":   {func() { c.row(t, canary+" is no topic", nil, 0) }, 14},
		"headers": {func() { c.row(t, "orders", `["`+canary+`"]`, 0) }, 14},
		"size":    {func() { c.row(t, "orders", nil, 3_000_000) }, 14},
		"update": {func() {
			c.db.Exec(t, "ALTER PUBLICATION outbox_cdc SET (publish = 'insert, update')")
			c.row(t, "orders", nil, 0)
			c.db.Exec(t, "UPDATE outbox SET payload = to_jsonb('"+canary+" again'::text)")
		}, 13},
	} {
		for _, format := range []string{"text", "json"} {
			tc.spoil()
			process := rig.Start(t, "run", "--accept-gap", "-c", c.config(t, nil), "--set", "log.format="+format)
			if code := process.Exit(t); code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", name, code, tc.code, rig.Tail(process.Stderr.String(), 10))
			}
			c.output["stops at "+name+" in "+format] = process.Stderr.String()
			wait.For(t, "the slot to be free", func() bool {
				return !rig.Ask[bool](t, conn, `SELECT active FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`)
			})
			c.db.Exec(t, "SELECT pg_replication_slot_advance('outbox_cdc', pg_current_wal_lsn())")
			c.db.Exec(t, "DELETE FROM outbox")
		}
	}
}

// refused runs verbs against servers that reject the credentials, some of which return them in their
// response.
func (c *confidant) refused(t *testing.T) {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		http.Error(w, fmt.Sprint(r.Header, r.Form, canary), http.StatusUnauthorized)
	}))
	defer endpoint.Close()
	token := writeFile(t, "token", []byte(secretOf("token")))
	for name, tc := range map[string]struct {
		with map[string]string
		args []string
		code int
	}{
		"Postgres' password": {map[string]string{"dsn": c.dsn(secretOf("wrong"))}, nil, 10},
		"Postgres' user":     {map[string]string{"dsn": strings.Replace(c.dsn(secretOf("pg")), "cdc:", "nobody:", 1)}, nil, 10},
		"Postgres' name":     {map[string]string{"dsn": strings.Replace(c.dsn(secretOf("pg")), "127.0.0.1", "no-such-host.invalid", 1)}, nil, 10},
		"Postgres' setting":  {map[string]string{"dsn": c.dsn(secretOf("pg"), "&options="+secretOf("option"))}, nil, 10},
		"Postgres' value":    {map[string]string{"dsn": c.dsn(secretOf("pg"), "&role="+secretOf("option"))}, nil, 10},
		"Postgres' names":    {map[string]string{"dsn": c.dsn(secretOf("pg"), "&passwrd="+secretOf("pg"))}, nil, 2},
		"Kafka's password":   {map[string]string{"password": secretOf("wrong")}, nil, 20},
		"Kafka's token": {nil, []string{
			"--set", "sink.kafka.sasl.mechanism=OAUTHBEARER", "--set", "sink.kafka.sasl.user=", "--set", "sink.kafka.sasl.password=",
			"--set", "sink.kafka.sasl.token_file=" + token,
		}, 20},
		"no token endpoint": {nil, []string{
			"--set", "sink.kafka.sasl.mechanism=OAUTHBEARER", "--set", "sink.kafka.sasl.user=", "--set", "sink.kafka.sasl.password=",
			"--set", "sink.kafka.sasl.token_url=http://127.0.0.1:1/?key=" + secretOf("url"), "--set", "sink.kafka.sasl.client_id=relay", "--set", "sink.kafka.sasl.client_secret=" + secretOf("client"),
		}, 20},
		"the token endpoint": {nil, []string{
			"--set", "sink.kafka.sasl.mechanism=OAUTHBEARER", "--set", "sink.kafka.sasl.user=", "--set", "sink.kafka.sasl.password=",
			"--set", "sink.kafka.sasl.token_url=" + endpoint.URL + "/?key=" + secretOf("url"), "--set", "sink.kafka.sasl.client_id=relay", "--set", "sink.kafka.sasl.client_secret=" + secretOf("client"),
		}, 20},
	} {
		with := map[string]string{"more": "startup_timeout: 3s"}
		maps.Copy(with, tc.with)
		config := c.config(t, with)
		for _, verb := range []string{"run", "setup", "migrate status"} {
			want := tc.code
			if verb != "run" && want == 20 {
				continue // it does not contact Kafka
			}
			out, code := rig.Command(t, slices.Concat(strings.Fields(verb), []string{"-c", config}, tc.args)...)
			if code != want {
				t.Errorf("%s, %s: exit code %d, want %d\n%s", verb, name, code, want, out)
			}
			c.output[verb+", refused by "+name] = out
		}
	}
}

// mistakes makes mistakes that people make with secrets on the command line.
func (c *confidant) mistakes(t *testing.T) {
	t.Helper()
	url := "postgres://u:" + canary + "@h/db"
	for name, args := range map[string][]string{
		"the flag forgotten":  {"run", url},
		"words forgotten":     {"run", "host=h", "password=" + canary},
		"a verb forgotten":    {url},
		"a bad port":          {"run", "--dsn", "postgres://u:" + canary + "@h:port/db"},
		"quotes forgotten":    {"run", "--dsn", "host=h password=" + canary + " " + canary},
		"an unknown flag":     {"run", "--password=" + canary},
		"a short flag":        {"run", "-p" + canary},
		"a misspelt key":      {"run", "--set", "sink.kafka.sasl.pasword=" + canary},
		"a secret as brokers": {"run", "--brokers", url},
		"a secret as slot":    {"run", "--slot", url},
		"a secret as bool":    {"run", "--set", "source.wait_for_slot=" + url},
		"a secret as choice":  {"run", "--set", "source.create=" + url},
		"YAML alias":          {"run", "-c", yamlFile(t, "source: {dsn: *%s}", canary)},
		"YAML list":           {"run", "-c", yamlFile(t, "source: {dsn: [%s]}", canary)},
		"YAML without end":    {"run", "-c", yamlFile(t, "source: {dsn: \"%s\n", canary)},
		"YAML of no kind":     {"run", "-c", yamlFile(t, "%s", url)},
		"a key as sslkey":     {"run", "--dsn", "host=h sslcert=/c sslkey='-----BEGIN PRIVATE KEY-----\n" + canary + "\n'"},
		"a secret as file":    {"run", "--set", "source.dsn_file=" + url},
		"a secret as -c":      {"run", "-c", url},
		"a secret as token":   {"run", "--set", "sink.kafka.sasl.mechanism=OAUTHBEARER", "--set", "sink.kafka.sasl.token_file=" + canary},
		"a file of no kind":   {"run", "--set", "source.dsn_file=" + writeFile(t, "dsn", []byte(canary))},
	} {
		out, code := rig.Command(t, args...)
		if code != 2 {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
		c.output["mistake: "+name] = out
	}
	cmd := exec.CommandContext(t.Context(), rig.Binary(t), "run")
	cmd.Env = append(os.Environ(), "OUTBOX_CDC_SINK_KAFKA_SASL_PASWORD="+canary, "OUTBOX_CDC_SOURCE_CREATE="+url)
	out, _ := cmd.CombinedOutput()
	c.output["mistake: misspelt variable"] = string(out)
}

// prints runs the verbs that print a configuration full of secrets.
func (c *confidant) prints(t *testing.T) {
	t.Helper()
	config := c.config(t, nil)
	for _, args := range [][]string{
		{"config", "-c", config},
		{"config", "--dsn", "host=h passwrd=" + canary + " options='-c app.token=" + canary + "'", "--brokers", "k:9092"},
		{"config", "--set", "source.dsn_file=" + canary, "--set", "source.dsn=host=h"},
		{"config", "-c", config, "--schema"},
		{"--help"},
		{"run", "--help"},
		{"version"},
		{"help", "config"},
		{"migrate", "status", "--dsn", c.dsn(secretOf("pg"))},
		{"migrate", "up", "--dsn", c.dsn(secretOf("wrong"))},
		{"setup", "-c", config},
		{"status", "-c", config},
		{"status", "-c", c.config(t, map[string]string{"dsn": c.dsn(secretOf("wrong"))}), "--json"},
		{"healthcheck", "-c", config},
		{"tail", "-c", c.config(t, map[string]string{"dsn": c.dsn(secretOf("wrong"))})},
	} {
		cmd := exec.CommandContext(context.Background(), rig.Binary(t), args...)
		cmd.Env = append(os.Environ(), "OUTBOX_CDC_SINK_KAFKA_SASL_PASSWORD="+secretOf("kafka"))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run()
		if out.Len() == 0 {
			t.Errorf("%v prints nothing", args)
		}
		c.output[strings.Join(args, " ")] = out.String()
	}
}
