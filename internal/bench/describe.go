package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// A machine describes the environment of a measurement. Unknown fields are empty.
type machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"` // that this process may use
	MemoryGB int    `json:"memory_gb"`
	Kernel   string `json:"kernel"`
	Load     string `json:"load_average"` // of one minute, before anything was measured

	Relay    string `json:"relay"` // version of each that is measured
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Broker   string `json:"broker"`
	Library  string `json:"library"` // of the contender client-library
	Java     string `json:"java,omitempty"`
	Debezium string `json:"debezium,omitempty"`
}

func describe(ctx context.Context, s *settings, relays []program, on *site, own *servers) (machine, error) {
	m := machine{
		CPU: firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), Cores: runtime.NumCPU(),
		Kernel: output(ctx, "uname", "-sr"), Load: firstMatch("/proc/loadavg", `^(\S+)`),
		Relay: versions(ctx, relays), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Broker: on.brokers, Library: on.broker.Library(),
	}
	if kb, err := strconv.Atoi(firstMatch("/proc/meminfo", `(?m)^MemTotal:\s*(\d+) kB$`)); err == nil {
		m.MemoryGB = (kb + 1<<19) >> 20
	}
	var err error
	if m.Postgres, err = postgresVersion(ctx, on.Postgres); err != nil {
		return machine{}, err
	}
	if own.postgres == nil {
		m.Postgres += " at " + on.source
	}
	if own.broker != nil {
		m.Broker = own.broker.version
	}
	if own.broker != nil && s.sink == kafkaKind || s.debezium {
		_, version, err := kafkatest.Java(ctx)
		if err != nil {
			return machine{}, err
		}
		first, _, _ := bytes.Cut(version, []byte("\n"))
		m.Java = string(first)
	}
	if s.debezium {
		m.Debezium = debezium.Version
	}
	return m, nil
}

// versions returns the version of each relay.
func versions(ctx context.Context, relays []program) string {
	var all []string
	for _, p := range relays {
		first, _, _ := strings.Cut(output(ctx, p.path, "version"), "\n")
		_, version, _ := strings.Cut(first, " ")
		if p.label != relayName {
			version = p.label + " " + version
		}
		all = append(all, version)
	}
	return strings.Join(all, ", ")
}

func postgresVersion(ctx context.Context, cfg *pgx.ConnConfig) (version string, err error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	const query = `SELECT format('%s, fsync %s, synchronous_commit %s', current_setting('server_version'),
		current_setting('fsync'), current_setting('synchronous_commit'))`
	if err := conn.QueryRow(ctx, query).Scan(&version); err != nil {
		return "", fmt.Errorf("read Postgres' version: %w", err)
	}
	return version, nil
}

// firstMatch returns the first group of the first match of a pattern in a file, or
// "" if there is none.
func firstMatch(path, pattern string) string {
	text, err := os.ReadFile(path) //nolint:gosec // paths of ours
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// output returns the output of a program, or "" if it fails.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // programs of ours
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
