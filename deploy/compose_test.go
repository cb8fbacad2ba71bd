package deploy

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A composition is the part of compose.yaml that can run without Docker.
type composition struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Ports       []string
		Healthcheck struct{ Test []string }
	}
}

// TestCompose starts the services of compose.yaml without Docker: the servers with its settings, and the built
// binaries with its commands, variables and restrictions. Orders must arrive in Kafka.
func TestCompose(t *testing.T) {
	var c composition
	readYAML(t, "compose.yaml", &c)
	image, example := build(t, "../Dockerfile"), build(t, "example/Dockerfile")
	postgres, kafka := c.postgres(t), c.kafka(t)
	env := func(service string) map[string]string {
		env := maps.Clone(c.Services[service].Environment)
		for name, value := range env {
			value = strings.ReplaceAll(value, "@postgres/", "@"+postgres.Addr()+"/")
			env[name] = strings.ReplaceAll(value, "kafka:9092", kafka.Addrs[0])
		}
		return env
	}
	args := func(service string) []string { return append([]string{"/outbox-cdc"}, c.Services[service].Command...) }

	for _, job := range []string{"migrate", "setup"} {
		start(t, image, env(job), args(job)...).exits(t)
	}
	relayEnv := env("relay")
	relayEnv["OUTBOX_CDC_ADMIN_LISTEN"] = "127.0.0.1:0"
	relay := start(t, image, relayEnv, args("relay")...)
	relay.says(t, `"msg":"streaming"`)
	relay.confined(t)
	orders := start(t, example, env("orders"), "/orders")
	for i, rec := range kafka.ReadN(t, 3, "outbox.event.order") {
		if len(rec.Key) == 0 || !strings.HasPrefix(string(rec.Value), `{"`) || string(rec.Headers[1].Value) != "OrderPlaced" {
			t.Errorf("record %d: key %q, value %q, headers %v", i, rec.Key, rec.Value, rec.Headers)
		}
	}
	url := relay.says(t, `"url":"(http://[^"]+/)"`)[1]
	for _, path := range []string{"livez", "readyz", "metrics", "status", ""} {
		get(t, url+path)
	}
	published := c.Services["relay"].Ports[0]
	published = published[:strings.LastIndexByte(published, ':')]
	for host, want := range map[string]int{published: 200, strings.Replace(published, "127.0.0.1", "localhost", 1): 200, "evil.example:9187": 403} {
		if status, body := request(t, url+"status", host); status != want {
			t.Errorf("of %s: %d, want %d\n%s", host, status, want, body)
		}
	}
	relayEnv["OUTBOX_CDC_ADMIN_LISTEN"] = strings.Trim(strings.TrimPrefix(url, "http://"), "/")
	checks := [][]string{c.Services["relay"].Healthcheck.Test[1:], imageCheck(t)}
	for _, check := range checks {
		start(t, image, relayEnv, check...).exits(t)
	}
	orders.terminate(t)
	relay.terminate(t)
	for _, check := range checks {
		gone := start(t, image, relayEnv, check...)
		<-gone.done
		if code, says := gone.cmd.ProcessState.ExitCode(), read(t, gone.output); code != 1 || !strings.HasPrefix(says, "no response from ") {
			t.Errorf("%v returns %d for a relay that has stopped: %s", check, code, says)
		}
	}
}

// imageCheck returns the health check of the Dockerfile.
func imageCheck(t *testing.T) (args []string) {
	t.Helper()
	check := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(read(t, "../Dockerfile"))
	if check == nil {
		t.Fatal("the image has no health check")
	}
	must(t, json.Unmarshal([]byte(check[1]), &args))
	return args
}

func get(t *testing.T, url string) string {
	t.Helper()
	status, body := request(t, url, "")
	if status != http.StatusOK {
		t.Errorf("%s: %d\n%s", url, status, body)
	}
	return body
}

// request requests url with host as its Host header, or with its own if host is empty.
func request(t *testing.T, url, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

// postgres starts a server as the image does: with the settings from the command, a database, and the init script.
func (c composition) postgres(t *testing.T) *pgserver.Server {
	t.Helper()
	service := c.Services["postgres"]
	settings := map[string]string{}
	for _, arg := range service.Command {
		if name, value, ok := strings.Cut(arg, "="); ok {
			settings[name] = value
		}
	}
	srv := pgtest.Start(t, pgserver.Config{Settings: settings})
	admin, name := &pgtest.DB{DSN: srv.DSN("postgres")}, service.Environment["POSTGRES_DB"]
	admin.Exec(t, `CREATE DATABASE `+name)
	(&pgtest.DB{DSN: srv.DSN(name)}).Exec(t, read(t, "compose/roles.sql"))
	must(t, srv.WriteFile("pg_hba.conf", []byte("host all shop,cdc 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")))
	admin.Exec(t, `SELECT pg_reload_conf()`)
	return srv
}

// kafka starts a broker as the image does, with server.properties from the variables. Only the listeners and the
// data directory differ.
func (c composition) kafka(t *testing.T) *kafkatest.Server {
	t.Helper()
	service := c.Services["kafka"]
	if want := "apache/kafka:" + kafkatest.Version() + "@"; !strings.HasPrefix(service.Image, want) {
		t.Errorf("image %s, tested is %s", service.Image, want)
	}
	properties := map[string]string{}
	ours := regexp.MustCompile(`^KAFKA_(LISTENERS|ADVERTISED_LISTENERS|CONTROLLER_.*|LISTENER_SECURITY_.*|LOG_DIRS)$`)
	for name, value := range service.Environment {
		if !ours.MatchString(name) {
			properties[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "KAFKA_"), "_", "."))] = value
		}
	}
	return kafkatest.Start(t, kafkatest.Config{Properties: properties})
}
