package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A recordedCase is one recorded configuration with its rows and records.
type recordedCase struct {
	name string // of the directory

	// config is the configuration, with placeholders; see [environment]. It is the content of configFile.
	config     string
	configFile string // connectConfig or serverConfig
	worker     string // Connect's own properties, with placeholders

	setup script // runs before the connector starts
	rows  script // runs once the connector streams

	topics []topic

	// records are the recorded records, by topic, partition and offset.
	records []Record
	// failure is the text of error.txt, or empty if Debezium did not fail.
	failure string
}

// A topic exists before the connector starts.
type topic struct {
	name       string
	partitions int32
	// firstOnly: only the first record was recorded.
	firstOnly bool
	// anyValue: values contain positions or times, and are not compared.
	anyValue bool
}

// Names of files with a configuration.
const (
	// connectConfig is JSON, as clients send it to Kafka Connect.
	connectConfig = "connector.json"
	// serverConfig has the properties of Debezium Server.
	serverConfig = "application.properties"
)

// load reads a corpus, which is every directory in it that has a configuration. It sorts the cases by name.
func load(corpus fs.FS) ([]*recordedCase, error) {
	var configs []string
	for _, name := range []string{connectConfig, serverConfig} {
		found, err := fs.Glob(corpus, "*/"+name)
		if err != nil {
			return nil, err
		}
		configs = append(configs, found...)
	}
	if len(configs) == 0 {
		return nil, fmt.Errorf("no folder in it has a %s or %s", connectConfig, serverConfig)
	}
	slices.Sort(configs)
	var cases []*recordedCase
	for _, config := range configs {
		dir := path.Dir(config)
		folder, err := fs.Sub(corpus, dir)
		if err != nil {
			return nil, err
		}
		c, err := loadCase(folder, path.Base(config))
		if err != nil {
			return nil, fmt.Errorf("read case %s: %w", dir, err)
		}
		c.name = dir
		cases = append(cases, c)
	}
	return cases, nil
}

func loadCase(folder fs.FS, configFile string) (*recordedCase, error) {
	c := &recordedCase{configFile: configFile}
	var errs []error
	read := func(name string, parse func(text string) error) {
		data, err := fs.ReadFile(folder, name)
		if err == nil {
			err = parse(string(data))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	optional := func(name string, to *string) {
		if _, err := fs.Stat(folder, name); err == nil {
			read(name, keep(to))
		}
	}
	c.worker = defaultWorker
	read(configFile, keep(&c.config))
	optional("worker.properties", &c.worker)
	optional("error.txt", &c.failure)
	read("setup.sql", func(text string) (err error) { c.setup, err = parseScript(text); return err })
	read("rows.sql", func(text string) (err error) { c.rows, err = parseScript(text); return err })
	read("topics.txt", func(text string) (err error) { c.topics, err = parseTopics(text); return err })
	read("records.jsonl", func(text string) (err error) { c.records, err = parseRecords(text); return err })
	return c, errors.Join(errs...)
}

func keep(to *string) func(string) error {
	return func(text string) error {
		*to = text
		return nil
	}
}

// parseTopics reads lines that have a name, a number of partitions, and optionally first-only and value=*.
func parseTopics(text string) ([]topic, error) {
	var topics []topic
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t := topic{name: fields[0]}
		if len(fields) < 2 {
			return nil, fmt.Errorf("topic %s: its number of partitions is missing", t.name)
		}
		n, err := strconv.ParseInt(fields[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.name, err)
		}
		t.partitions = int32(n)
		for _, word := range fields[2:] {
			switch word {
			case "first-only":
				t.firstOnly = true
			case "value=*":
				t.anyValue = true
			default:
				return nil, fmt.Errorf("topic %s: unknown word %q", t.name, word)
			}
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// parseRecords reads records.jsonl.
func parseRecords(text string) ([]Record, error) {
	var records []Record
	for n, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		records = append(records, r)
	}
	return records, nil
}

// An environment maps the placeholders in config and worker to their values: PGHOST, PGPORT, PGUSER,
// PGPASSWORD, PGDATABASE, KAFKA_BOOTSTRAP, PLUGIN_PATH and WORKDIR.
type environment map[string]string

// fill replaces the placeholders in text.
func (env environment) fill(text string) string {
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, "${"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// defaultWorker is the worker configuration of cases without one.
const defaultWorker = `bootstrap.servers=${KAFKA_BOOTSTRAP}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
`
