package debezium

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

const corpus = "../../test/conformance/testdata"

// refusedCases are the recorded configurations that the import rejects, with the key and the message.
var refusedCases = map[string]string{
	"025-route-regex-invalid-fails": "transforms.outbox.route.topic.regex: match: in",
	"030-envelope-string":           "value.converter: with an envelope it writes Java's text Struct{…}",
	"068-partitioned-leaves":        `table.include.list: public\.outbox_.* is an expression that only the database can resolve`, // the command asks the database
}

// The import converts every recorded configuration to one that loads, with and without --exact, except those in
// refusedCases.
func TestCorpus(t *testing.T) {
	var cases []string
	for _, file := range []string{"connector.json", "application.properties"} {
		found, err := filepath.Glob(filepath.Join(corpus, "*", file))
		if err != nil || len(found) == 0 {
			t.Fatalf("no cases with %s: %v", file, err)
		}
		cases = append(cases, found...)
	}
	fill := strings.NewReplacer("${PGHOST}", "127.0.0.1", "${PGPORT}", "5432", "${PGUSER}", "postgres", "${PGPASSWORD}", "pass'word", "${PGDATABASE}", "app",
		"${KAFKA_BOOTSTRAP}", "127.0.0.1:9092")
	for _, path := range cases {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			worker, err := os.ReadFile(filepath.Join(filepath.Dir(path), "worker.properties"))
			if err != nil {
				worker = []byte("bootstrap.servers=${KAFKA_BOOTSTRAP}\nkey.converter=org.apache.kafka.connect.storage.StringConverter\n" +
					"value.converter=org.apache.kafka.connect.storage.StringConverter\n")
			}
			in, err := Parse([]byte(fill.Replace(string(data))))
			if err != nil {
				t.Fatal(err)
			}
			for _, exact := range []bool{false, true} {
				result, err := Import(in, Options{Worker: []byte(fill.Replace(string(worker))), Exact: exact})
				if err != nil {
					t.Fatal(err)
				}
				if refused := result.Report.Refused(); len(refused) > 0 || refusedCases[name] != "" {
					key, text, _ := strings.Cut(refusedCases[name], ": ")
					if len(refused) != 1 || result.YAML != nil || refused[0].key != key || !strings.Contains(refused[0].text, text) {
						t.Errorf("refused: %q, want %q", refused, refusedCases[name])
					}
					continue
				}
				cfg, err := config.Load(config.Sources{File: name + ".yaml", Content: result.YAML})
				if err != nil {
					t.Fatalf("exact %t: %v\n%s", exact, err, result.YAML)
				}
				if _, err := cfg.Relay(); err != nil {
					t.Errorf("exact %t: %v\n%s", exact, err, result.YAML)
				}
			}
		})
	}
}
