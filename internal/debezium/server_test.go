package debezium

import (
	"slices"
	"strings"
	"testing"
)

const serverBase = `debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=kafka:9092
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore
debezium.source.database.hostname=localhost
debezium.source.database.user=cdc
debezium.source.database.dbname=app
debezium.source.topic.prefix=shop
debezium.source.plugin.name=pgoutput
debezium.source.table.include.list=public.outbox
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
`

// A class counts, whatever the format is: the format's class is only the default.
func TestServerFormatClass(t *testing.T) {
	for _, tt := range []struct {
		lines, key, value, headers string // headers: encodings that the import sets
	}{
		{"", encJSONSchema, encJSONSchema, encJSONSchema},
		{"debezium.format.value.class=" + stringConverter + "\n", encJSONSchema, encString, encJSONSchema},
		{"debezium.format.value=avro\ndebezium.format.value.class=" + binaryConverter + "\n", encJSONSchema, encBytes, encJSONSchema},
		{"debezium.format.schemas.enable=false\ndebezium.format.key.class=" + jsonConverter + "\ndebezium.format.header.class=" + stringConverter + "\n", encJSON, encJSON, encString},
	} {
		result := importedText(t, serverBase+tt.lines)
		var report strings.Builder
		_, _ = result.Report.WriteTo(&report)
		want := "encoding:\n    key: " + tt.key + "\n    value: " + tt.value + "\n    headers: " + tt.headers + "\n"
		if !strings.Contains(string(result.YAML), want) {
			t.Errorf("%q:\n%s\n%s\nwant %q", tt.lines, report.String(), result.YAML, want)
		}
		if strings.Contains(report.String(), " REJ ") || strings.Contains(tt.lines, "avro") && !strings.Contains(report.String(), "debezium.format.value.class counts") {
			t.Errorf("%q:\n%s", tt.lines, report.String())
		}
	}
}

// Debezium Server runs in Quarkus' profile prod: a value of this profile counts in place of one without a profile.
func TestServerProfile(t *testing.T) {
	const (
		profiles = "%prod.debezium.source.database.hostname=127.0.0.1\n%prod.debezium.format.value=simplestring\n%prod.debezium.sink.type=kafka\n" +
			"%dev.debezium.source.database.hostname=dev\n%dev.debezium.transforms.outbox.table.field.event.id=dev\n"
		inYAML = `"%prod": {debezium: {source: {database: {hostname: 127.0.0.1}}, format: {value: simplestring}}}
"%dev": {debezium: {source: {database: {hostname: dev}}}}
debezium:
  sink: {type: kafka, kafka.producer.bootstrap.servers: "kafka:9092"}
  source:
    connector.class: io.debezium.connector.postgresql.PostgresConnector
    database: {hostname: localhost, user: cdc, dbname: app}
    topic.prefix: shop
    plugin.name: pgoutput
    table.include.list: public.outbox
  transforms: {~: outbox, outbox.type: io.debezium.transforms.outbox.EventRouter}
`
	)
	several := strings.NewReplacer("%prod.", "%{dev,prod}.", "%dev.", "%{dev,test}.", `"%prod"`, `"%{dev,prod}"`, `"%dev"`, `"%{dev,test}"`).Replace
	for _, text := range []string{serverBase + profiles, profiles + serverBase, inYAML, serverBase + several(profiles), several(inYAML)} {
		dev := "%dev."
		if strings.Contains(text, "{dev,test}") {
			dev = "%{dev,test}."
		}
		result := importedText(t, text)
		if file := string(result.YAML); !strings.Contains(file, "host=127.0.0.1 ") || !strings.Contains(file, "value: string\n") || !strings.Contains(file, "id: id\n") {
			t.Errorf("%s\n%v\n%s", text, result.Report.findings, file)
		}
		for _, key := range []string{"debezium.source.database.hostname", dev + "debezium.source.database.hostname"} {
			if !slices.ContainsFunc(result.Report.findings, func(f Finding) bool { return f.key == key && strings.Contains(f.text, "profile") }) {
				t.Errorf("%s\nno finding about %s: %v", text, key, result.Report.findings)
			}
		}
	}
}

// A DebeziumServer becomes what the properties that the operator writes of it become.
func TestOperator(t *testing.T) {
	const resource = `apiVersion: debezium.io/v1alpha1
kind: DebeziumServer
metadata: {name: orders}
spec:
  source:
    class: io.debezium.connector.postgresql.PostgresConnector
    offset: {memory: {}}
    config:
      database.hostname: localhost
      database: {user: cdc, password: x, dbname: app}
      topic.prefix: shop
      plugin.name: pgoutput
      slot.name: "found" # the slot's name
      table.include.list: public.outbox
  sink:
    type: kafka
    config: {producer.bootstrap.servers: "a:9092"}
  format:
    key: {type: simplestring}
    value: {type: json, config: {schemas.enable: false}}
  predicates:
    p: {type: ` + topicMatches + `, config: {pattern: shop.public.outbox}}
  transforms:
    - type: io.debezium.transforms.outbox.EventRouter
      predicate: p
      config: {route.topic.replacement: "$${routedByValue}.events"}
`
	in, err := Parse([]byte(resource))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if refused := result.Report.Refused(); len(refused) > 0 || in.Name != "orders" || in.form != formOperator {
		t.Fatalf("%s %s: %v", in.form, in.Name, refused)
	}
	for _, want := range []string{"slot: found", "topic: ${route}.events", "tables: [public.outbox]", "key: string", "value: json\n", "brokers: ['a:9092']", "user=cdc"} {
		if !strings.Contains(string(result.YAML), want) {
			t.Errorf("no %q in\n%s", want, result.YAML)
		}
	}
	if e, _ := in.find("slot.name"); e.line != 13 {
		t.Errorf("line %d", e.line)
	}
}

// Without quotes, an action of a template is YAML for a map, and must not be left out.
func TestServerTemplates(t *testing.T) {
	for _, text := range []string{
		"debezium:\n  source:\n    connector.class: PostgresConnector\n    slot.name: {{ .slot }}\n",
		"kind: DebeziumServer\nspec:\n  source:\n    config: {slot.name: {{ .slot }}}\n",
		"services:\n  s:\n    environment:\n      DEBEZIUM_SOURCE_CONNECTOR_CLASS: PostgresConnector\n      DEBEZIUM_SOURCE_SLOT_NAME: {{ .slot }}\n",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), ": {{ .slot }}") {
			t.Errorf("%s: error = %v", text, err)
		}
	}
}

// What Debezium Server evaluates or does not take is named: an expression with its default, in any key that has a meaning.
func TestServerRefusals(t *testing.T) {
	for line, want := range map[string]string{
		"debezium.source.slot.name=${SLOT:orders}":                "${SLOT:orders} is an expression, which Debezium Server reads from its environment: write the value of SLOT in its place, or the default, orders, if it is not set there",
		"debezium.source.slot.name=${SLOT}":                       "${SLOT} is an expression, which Debezium Server reads from its environment: write the value in its place",
		"debezium.source.slot.name=${app.slot:}":                  "${app.slot} is an expression",
		"debezium.transforms.outbox.route.topic.regex=(${KIND})":  "${KIND} is an expression",
		"debezium.transforms.outbox.route.topic.replacement=${T}": "write $$ for $",
		"debezium.format.header=simplestring":                     `format "simplestring": Debezium Server has only json for headers`,
		"debezium.sink.type=${SINK:kafka}":                        "${SINK:kafka} is an expression",
		"debezium.source.connector.class=${CLASS:Postgres}":       "${CLASS:Postgres} is an expression",
	} {
		key, _, _ := strings.Cut(line, "=")
		var text strings.Builder
		for l := range strings.Lines(serverBase) {
			if !strings.HasPrefix(l, key+"=") {
				text.WriteString(l)
			}
		}
		result := importedText(t, text.String()+line+"\n")
		if refused := result.Report.Refused(); len(refused) != 1 || refused[0].key != key || !strings.Contains(refused[0].text, want) || result.YAML != nil {
			t.Errorf("%s: %v, want %s", line, refused, want)
		}
	}
}
