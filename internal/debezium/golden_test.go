package debezium

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

var update = flag.Bool("update", false, "write the golden files and the table of the documentation")

// Typical configurations in all formats become the files next to them: a YAML file that loads, the report, and the
// rollback plan.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/golden/*.in")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, path := range inputs {
		name := strings.TrimSuffix(filepath.Base(path), ".in")
		t.Run(name, func(t *testing.T) {
			in, err := Parse(read(t, path))
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{Exact: name == "msk"}
			if worker, err := os.ReadFile("testdata/golden/" + name + ".worker"); err == nil {
				opts.Worker = worker
			}
			result, err := Import(in, opts)
			if err != nil {
				t.Fatal(err)
			}
			var report, plan bytes.Buffer
			if _, err := result.Report.WriteTo(&report); err != nil {
				t.Fatal(err)
			}
			if err := result.WriteNext(&report); err != nil {
				t.Fatal(err)
			}
			if _, err := result.RollbackPlan().WriteTo(&plan); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".report", report.Bytes())
			golden(t, name+".yaml", result.YAML)
			golden(t, name+".rollback", plan.Bytes())
			var environ []string
			for _, v := range result.Variables {
				environ = append(environ, v+"=x")
			}
			cfg, err := config.Load(config.Sources{File: name + ".yaml", Content: result.YAML, Environ: environ})
			if err != nil && name == "strimzi" && strings.Contains(err.Error(), "/opt/kafka/certs/ca.crt: no such file") {
				return // the file exists only on the host of the relay
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cfg.Relay(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The plan for a new slot has the commands for Kafka Connect or for Debezium Server.
func TestSwitchPlan(t *testing.T) {
	for name, changes := range map[string]string{"connect": "-plugin.name", "server": "-plugin.name", "dropping": "slot.drop.on.stop=true"} {
		result := imported(t, changes, name == "server", Options{NewSlot: "outbox_cdc"})
		result.alone = name == "server"
		var plan bytes.Buffer
		if _, err := result.SwitchPlan("outbox-cdc.yaml").WriteTo(&plan); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".switch", plan.Bytes())
		loads(t, name, result)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, path)), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
