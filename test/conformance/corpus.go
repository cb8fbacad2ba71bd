package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Case is one recorded set-up.
type Case struct {
	Name string // of the folder

	Connector string // JSON, as it is sent to Connect, with placeholders: see [Environment]
	Worker    string // Connect's own properties, with placeholders

	Setup Script // before the connector starts
	Rows  Script // once it streams

	Topics []Topic

	// Records are what came out, by topic, partition and offset.
	Records []Record
	// Failure is the text of error.txt; empty where all went well.
	Failure string
}

// A Topic is one that is made beforehand.
type Topic struct {
	Name       string
	Partitions int32
	// FirstOnly: only the first record was kept.
	FirstOnly bool
	// AnyValue: values hold positions or times and are not compared.
	AnyValue bool
}

// Load reads a corpus: every folder of it that has a connector.json. The cases are in the
// order of their names.
func Load(corpus fs.FS) ([]*Case, error) {
	configs, err := fs.Glob(corpus, "*/connector.json")
	if err != nil {
		return nil, err
	}
	if len(configs) == 0 {
		return nil, errors.New("no folder in it has a connector.json")
	}
	var cases []*Case
	for _, config := range configs {
		dir := path.Dir(config)
		folder, err := fs.Sub(corpus, dir)
		if err != nil {
			return nil, err
		}
		c, err := loadCase(folder)
		if err != nil {
			return nil, fmt.Errorf("read case %s: %w", dir, err)
		}
		c.Name = dir
		cases = append(cases, c)
	}
	return cases, nil
}

func loadCase(folder fs.FS) (*Case, error) {
	c := &Case{}
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
	c.Worker = defaultWorker
	read("connector.json", keep(&c.Connector))
	optional("worker.properties", &c.Worker)
	optional("error.txt", &c.Failure)
	read("setup.sql", func(text string) (err error) { c.Setup, err = ParseScript(text); return err })
	read("rows.sql", func(text string) (err error) { c.Rows, err = ParseScript(text); return err })
	read("topics.txt", func(text string) (err error) { c.Topics, err = parseTopics(text); return err })
	read("records.jsonl", func(text string) (err error) { c.Records, err = ParseRecords(text); return err })
	return c, errors.Join(errs...)
}

func keep(to *string) func(string) error {
	return func(text string) error {
		*to = text
		return nil
	}
}

// parseTopics reads lines of a name, a number of partitions, and perhaps first-only and
// value=*.
func parseTopics(text string) ([]Topic, error) {
	var topics []Topic
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t := Topic{Name: fields[0]}
		if len(fields) < 2 {
			return nil, fmt.Errorf("topic %s: its number of partitions is missing", t.Name)
		}
		n, err := strconv.ParseInt(fields[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, err)
		}
		t.Partitions = int32(n)
		for _, word := range fields[2:] {
			switch word {
			case "first-only":
				t.FirstOnly = true
			case "value=*":
				t.AnyValue = true
			default:
				return nil, fmt.Errorf("topic %s: unknown word %q", t.Name, word)
			}
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// ParseRecords reads records.jsonl.
func ParseRecords(text string) ([]Record, error) {
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

// An Environment is what the placeholders in Connector and Worker stand for: PGHOST, PGPORT,
// PGUSER, PGPASSWORD, PGDATABASE, KAFKA_BOOTSTRAP, PLUGIN_PATH and WORKDIR.
type Environment map[string]string

// Fill puts the values in.
func (env Environment) Fill(text string) string {
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, "${"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// defaultWorker is the worker of the cases that have none of their own.
const defaultWorker = `bootstrap.servers=${KAFKA_BOOTSTRAP}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
`
