package debezium

import (
	"slices"
	"strings"
	"testing"
)

// flatJSON are the keys of an outbox connector as JSON members; NAME is the slot's name.
const flatJSON = `"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "slot.name": "NAME", "transforms": "outbox",
  "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter"`

func keysJSON(slot string) string { return strings.ReplaceAll(flatJSON, "NAME", slot) }

// indent returns the lines of a text with more space in front.
func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}

const flatYAML = `connector.class: io.debezium.connector.postgresql.PostgresConnector
slot.name: "found" # the slot's name
transforms: 'outbox'
transforms.outbox.type: io.debezium.transforms.outbox.EventRouter
`

const serverYAML = `debezium:
  source:
    connector.class: io.debezium.connector.postgresql.PostgresConnector
    slot:
      name: "found" # the slot's name
  sink: {type: kafka}
  transforms: [outbox]
  transforms.outbox.type: io.debezium.transforms.outbox.EventRouter
`

// Parse finds the connector in the files in which people keep it. In each, the slot is called found.
func TestWhereConnectorsAre(t *testing.T) {
	rest := `{"name": "orders", "config": {` + keysJSON("found") + `}}`
	for name, tt := range map[string]struct{ text, name, form string }{
		"POST body": {rest, "orders", formREST},
		"PUT body":  {"{" + keysJSON("found") + "}", "", formConfig},
		"duplicate keys: the last one counts": {
			`{"name": "a", "slot.name": "lost", "name": "orders", ` + keysJSON("found") + "}", "orders", formConfig,
		},
		"GET /connectors?expand=info&expand=status": {
			`{"orders": {"status": {"name": "orders", "connector": {"state": "RUNNING"}, "tasks": []}, "info": ` + rest + `}}`, "orders", formREST,
		},
		"one outbox connector beside others": {
			`[{"name": "es", "config": {"connector.class": "io.x.ElasticsearchSinkConnector"}}, ` + rest +
				`, {"name": "cdc", "config": {"connector.class": "PostgresConnector", "slot.name": "lost"}}]`, "orders", formREST,
		},
		"two bodies, one after the other": {`{"name": "es", "config": {"connector.class": "a.Sink"}}` + "\n" + rest, "orders", formREST},
		"curl with a heredoc": {
			"#!/bin/sh\nuntil curl -sf http://connect:8083; do sleep 1; done\ncurl -X POST -H 'Content-Type: application/json' http://connect:8083/connectors -d @- <<EOF\n" + rest + "\nEOF\n",
			"orders", formREST,
		},
		"curl with single quotes": {"curl -X PUT localhost:8083/connectors/orders/config -d '{\n" + keysJSON("found") + "\n}'\n", "orders", formConfig},
		"curl with escaped quotes": {
			`curl -d "` + strings.ReplaceAll(rest, `"`, `\"`) + `" http://connect:8083/connectors`, "orders", formREST,
		},
		"request of an HTTP client": {"PUT http://localhost:8083/connectors/orders/config\nContent-Type: application/json\n\n{" + keysJSON("found") + "}\n\n###\n", "orders", formConfig},
		"Helm values":               {"replicas: 1\nconnectors:\n  orders:\n" + indent(flatYAML, "    "), "orders", formYAML},
		"Helm values, with config":  {"connectors:\n  - name: orders\n    config:\n" + indent(flatYAML, "      "), "orders", formYAML},
		"Helm values like Strimzi": {
			"connectors:\n  orders:\n    class: io.debezium.connector.postgresql.PostgresConnector\n    tasksMax: 1\n    config:\n" +
				indent(strings.Join(strings.SplitAfter(flatYAML, "\n")[1:], ""), "      "), "orders", formYAML,
		},
		"task of Ansible":    {"- uri:\n    url: http://connect:8083/connectors/orders/config\n    body:\n" + indent(flatYAML, "      "), "orders", formYAML},
		"Amazon MSK Connect": {`{"connectorName": "orders", "capacity": {}, "connectorConfiguration": {` + keysJSON("found") + "}}", "orders", formConfig},
		"Confluent for Kubernetes": {
			"kind: Connector\nmetadata: {name: orders}\nspec:\n  class: io.debezium.connector.postgresql.PostgresConnector\n  taskMax: 1\n  configs:\n" +
				indent(strings.Join(strings.SplitAfter(flatYAML, "\n")[1:], ""), "    "), "orders", formYAML,
		},
		"YAML anchors": {"base: &base\n  slot.name: lost\n  transforms: outbox\norders:\n  <<: *base\n" + indent(flatYAML, "  "), "orders", formYAML},
		"properties":   {"name=orders\nslot.name=found\nconnector.class=PostgresConnector\n", "orders", formProperties},
		"KafkaConnector among other documents": {
			"kind: Namespace\n---\nkind: KafkaConnector\nmetadata: {name: orders}\nspec:\n  class: io.debezium.connector.postgresql.PostgresConnector\n  config: {slot.name: found}\n---\n",
			"orders", formStrimzi,
		},
		"kind List": {
			"kind: List\nitems:\n  - kind: Secret\n  - kind: KafkaConnector\n    metadata: {name: orders}\n    spec: {class: PostgresConnector, config: {slot.name: found}}\n", "orders", formStrimzi,
		},
		"kind Template": {
			"kind: Template\nobjects:\n  - kind: KafkaConnector\n    metadata: {name: '${APP}'}\n    spec: {class: PostgresConnector, tasksMax: '${{TASKS}}', config: {slot.name: '${SLOT}'}}\n" +
				"parameters:\n  - {name: APP, value: orders}\n  - {name: SLOT, value: found}\n  - {name: TASKS, value: '1'}\n", "orders", formStrimzi,
		},
		"ConfigMap": {"kind: ConfigMap\ndata:\n  orders.json: |\n    {" + strings.ReplaceAll(keysJSON("found"), "\n", " ") + "}\n", "orders", formConfig},
		"ConfigMap with application.properties": {
			"kind: ConfigMap\nmetadata: {name: server}\ndata:\n  application.properties: |\n    debezium.sink.type=kafka\n    debezium.source.connector.class=PostgresConnector\n    debezium.source.slot.name=found\n",
			"", formServer,
		},
		"application.yaml": {serverYAML, "", formServerYAML},
		"application.yaml with dots": {
			"debezium.source.connector.class: PostgresConnector\ndebezium.source.slot.name: 'found' # c\ndebezium.sink.type: kafka\n", "", formServerYAML,
		},
		"compose, a map": {
			"services:\n  db: {image: postgres, environment: {POSTGRES_PASSWORD: x}}\n  debezium:\n    image: quay.io/debezium/server\n    environment:\n      DEBEZIUM_SINK_TYPE: kafka\n" +
				"      DEBEZIUM_SOURCE_CONNECTOR_CLASS: PostgresConnector\n      DEBEZIUM_SOURCE_SLOT_NAME: ${SLOT:-found}\n", "", formServerEnv,
		},
		"compose, a list": {
			"services:\n  debezium:\n    environment:\n      - DEBEZIUM_SOURCE_CONNECTOR_CLASS=PostgresConnector\n      - DEBEZIUM_SOURCE_SLOT_NAME=found\n", "", formServerEnv,
		},
		"Kubernetes Deployment": {
			"kind: Deployment\nspec: {template: {spec: {containers: [{name: s, env: [{name: DEBEZIUM_SOURCE_CONNECTOR_CLASS, value: PostgresConnector}, {name: DEBEZIUM_SOURCE_SLOT_NAME, value: found}]}]}}}\n",
			"", formServerEnv,
		},
		"docker run": {
			"#!/bin/sh\nset -e\ndocker run -d --name s -p 8080:8080 \\\n  -e DEBEZIUM_SINK_TYPE=kafka -e 'DEBEZIUM_SOURCE_CONNECTOR_CLASS=PostgresConnector' \\\n" +
				"  --env=DEBEZIUM_SOURCE_SLOT_NAME=\"found\" -eDEBEZIUM_SOURCE_DATABASE_PASSWORD quay.io/debezium/server:3.0\n", "", formServerEnv,
		},
		"podman run beside a request": {
			"podman run -e BOOTSTRAP_SERVERS=kafka:9092 -e CONFIG_STORAGE_TOPIC=c quay.io/debezium/connect:3.0\ncurl -d '" + strings.ReplaceAll(rest, "\n", " ") + "' c/connectors\n", "orders", formREST,
		},
		"compose with the connector in a command": {
			"services:\n  init:\n    command: >\n      curl -X POST http://connect:8083/connectors -d '" + strings.ReplaceAll(rest, "\n", " ") + "'\n", "orders", formREST,
		},
	} {
		in, err := Parse([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, tt.text)
			continue
		}
		if e, _ := in.find("slot.name"); e.value != "found" || !in.postgres() || in.Name != tt.name || in.form != tt.form {
			t.Errorf("%s: slot %q, class %s, name %q, form %s; want name %q, form %s", name, e.value, in.className(), in.Name, in.form, tt.name, tt.form)
		}
	}
}

// A variable's default is imported, and the report says so, because an environment may set another value.
func TestDefaultsOfVariables(t *testing.T) {
	const compose = "services:\n  s:\n    image: x\n"
	curl := func(slot string) string {
		return "curl -d '{" + strings.ReplaceAll(keysJSON(slot), "\n", " ") + "}' c/connectors\n"
	}
	for name, tt := range map[string]struct{ text, key string }{
		"environment": {compose + "    environment:\n      DEBEZIUM_SOURCE_CONNECTOR_CLASS: PostgresConnector\n      DEBEZIUM_TRANSFORMS: outbox\n" +
			"      DEBEZIUM_TRANSFORMS_OUTBOX_TYPE: " + eventRouter + "\n      DEBEZIUM_SINK_TYPE: kafka\n      DEBEZIUM_SOURCE_SLOT_NAME: ${SLOT-found}\n", "line 9: "},
		"a folded command":  {compose + "    command: >\n      " + curl("${SLOT:-found}"), "line 4: "},
		"a literal command": {compose + "    command: |\n      " + curl("${SLOT:-found}"), "line 5: "},
		"a script":          {"#!/bin/sh\n" + curl("'${SLOT:-found}'"), "line 2: "},
		"beside a worker":   {compose + "    environment:\n      BOOTSTRAP_SERVERS: ${SLOT:-kafka:9092}\n      CONFIG_STORAGE_TOPIC: c\n  r:\n    command: >\n      " + curl("found"), "line 5: "},
	} {
		in, err := Parse([]byte(tt.text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		result, err := Import(in, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var report strings.Builder
		if _, err := result.Report.WriteTo(&report); err != nil {
			t.Fatal(err)
		}
		want := tt.key + "this has the default of ${SLOT}: if an environment or a file .env sets SLOT, put that value into the file"
		if strings.Count(report.String(), "default of ${SLOT}") != 1 || !strings.Contains(report.String(), want) {
			t.Errorf("%s: the report does not say once %q:\n%s", name, want, &report)
		}
	}
}

// In a compose file $$ is a dollar. Debezium Server, too, needs two for one.
func TestComposeDollars(t *testing.T) {
	for text, want := range map[string]string{
		"services:\n  s:\n    image: debezium/server\n    environment:\n      DEBEZIUM_SOURCE_CONNECTOR_CLASS: PostgresConnector\n      DEBEZIUM_TRANSFORMS: outbox\n" +
			"      DEBEZIUM_TRANSFORMS_OUTBOX_ROUTE_TOPIC_REPLACEMENT: events.$$$${routedByValue}\n": "events.${routedByValue}",
		"services:\n  s:\n    image: curl\n    command: >\n      curl -d '{" + scriptClass + ", \"transforms.outbox.route.topic.replacement\": \"${ENV:-dev}.$${routedByValue}\"}' c/connectors\n": "dev.${routedByValue}",
	} {
		in, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := in.find("transforms.outbox.route.topic.replacement"); e.value != want {
			t.Errorf("%s: %s, want %s", text, e.value, want)
		}
	}
}

// Debezium Server's YAML has the keys of its properties: "~" is the map itself, and a list is separated by commas.
func TestServerYAML(t *testing.T) {
	in, err := Parse([]byte(serverYAML + "  format:\n    key:\n      ~: simplestring\n    value:\n      class: org.apache.kafka.connect.json.JsonConverter\n      schemas.enable: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"transforms": "outbox", "key.converter": stringConverter, "value.converter": jsonConverter, "value.converter.schemas.enable": "false", "header.converter": jsonConverter,
	} {
		if e, _ := in.find(key); e.value != want {
			t.Errorf("%s = %q, want %q", key, e.value, want)
		}
	}
}

func TestSeveralConnectors(t *testing.T) {
	both := `{"a": {"info": {"name": "a", "config": {` + keysJSON("first") + `}}}, "b": {"info": {"name": "b", "config": {` + keysJSON("second") + `}}}}`
	_, err := Parse([]byte(both))
	if want := "several connectors: choose one with --name, or give each its own file:\n  a (PostgresConnector)\n  b (PostgresConnector)"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	in, err := ParseNamed([]byte(both), "b")
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := in.find("slot.name"); e.value != "second" {
		t.Errorf("slot %s", e.value)
	}
	if _, err := ParseNamed([]byte(both), "c"); err == nil || !strings.HasPrefix(err.Error(), `no connector is called "c"; these are in the file:`) {
		t.Errorf("error = %v", err)
	}
}

// A value that is still a placeholder is rejected in the words of the file, with its line.
func TestPlaceholders(t *testing.T) {
	for value, want := range map[string]string{
		"${SLOT_NAME}": "line 4: ${SLOT_NAME} is a placeholder", "${SLOT:-a}": "line 4: ${SLOT:-a} is a placeholder", "$SLOT": "line 4: $SLOT is a placeholder",
		"x_@SLOT@": "line 4: @SLOT@ is a placeholder", "%SLOT%": "line 4: %SLOT% is a placeholder", "<your-slot>": "line 4: <your-slot> is a placeholder",
		"${file:/x:y}": "line 4: ${file:/x:y} refers to a config provider", "A b": "line 4: not the name of a slot",
	} {
		result := importedText(t, "{\n"+keysJSON("lost")+",\n\"slot.name\": \""+value+"\"}")
		if !slices.ContainsFunc(result.Report.findings, func(f Finding) bool { return f.key == "slot.name" && strings.HasPrefix(f.text, want) }) {
			t.Errorf("%s: %v, want %q", value, result.Report.Refused(), want)
		}
	}
	for key, value := range map[string]string{
		"database.password": "p$SSw0rd@x@", "database.hostname": "${HOST}", "transforms.outbox.route.topic.replacement": "${routedByValue}.x", "table.include.list": "public.outbox$",
		"database.user": "u", "producer.override.sasl.jaas.config": `M required username="a" password="$B";`,
	} {
		if text := unfilled(entry{key: key, value: value}); text != "" {
			t.Errorf("%s=%s: %s", key, value, text)
		}
	}
	for key, value := range map[string]string{
		"database.password": "$PASSWORD", "database.hostname": "@HOST@", "database.user": "<user>", "table.include.list": "${TABLE}", "schema.include.list": "%schema%",
	} {
		if text := unfilled(entry{key: key, value: value}); text != value+" is a placeholder: write the value in its place" {
			t.Errorf("%s=%s: %s", key, value, text)
		}
	}
}

// Debezium Server replaces ${NAME} before its router sees it. The report has the words of the file.
func TestServerExpressions(t *testing.T) {
	in, err := Parse([]byte(serverBase + "debezium.source.database.password=${DB_PASSWORD:secret}\ndebezium.transforms=outbox\ndebezium.transforms.outbox.type=" + eventRouter +
		"\ndebezium.transforms.outbox.route.topic.replacement=${routedByValue}.x\ndebezium.format.value=avro\n"))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, f := range result.Report.findings {
		texts[f.key] = f.text
	}
	for key, want := range map[string]string{
		"debezium.transforms.outbox.route.topic.replacement": "Debezium Server replaces ${routedByValue} with a variable of its environment: write $$ for $, and $$$$ in a compose file",
		"debezium.format.value":                              `format "avro" is not supported; use json, simplestring or binary`,
		"debezium.source.database.password":                  "source.dsn, with ${DB_PASSWORD}: set it in the environment of the relay; its default is not imported",
	} {
		if !strings.HasSuffix(texts[key], want) {
			t.Errorf("%s: %q, want %q", key, texts[key], want)
		}
	}
}

// Of a key that an object has several times, the report says which value counts.
func TestRepeatedKey(t *testing.T) {
	result := importedText(t, `{"slot.name": "lost", `+keysJSON("found")+"}")
	if f := result.Report.findings[0]; f.key != "slot.name" || f.verdict != noted || f.text != "several times in the file: the last value counts" {
		t.Errorf("%v", f)
	}
}

// In a topic, a placeholder is rejected as one, and other illegal characters by the broker's rules.
func TestPlaceholdersInTopics(t *testing.T) {
	for value, want := range map[string]string{
		"@ENV@.${routedByValue}": "@ENV@ is a placeholder", "<env>.${routedByValue}": "<env> is a placeholder", "%ENV%.${routedByValue}": "%ENV% is a placeholder", "%env%": "%env% is a placeholder",
		"a b.${routedByValue}": "no row has a legal topic: for the route Order, its name contains ' '", "a/b": "every row would go to one topic, whose name contains '/'",
		"${ENV}.${routedByValue}": "replace: in \"${ENV}.${routedByValue}\" at offset 0: there is no group ${ENV}; the groups are: $0, $1, ${routedByValue}; if it is a placeholder",
	} {
		refused := imported(t, routerAt+"route.topic.replacement="+value, false, Options{}).Report.Refused()
		if len(refused) != 1 || !strings.HasPrefix(refused[0].text, want) {
			t.Errorf("%s: %v, want %s", value, refused, want)
		}
	}
	if refused := imported(t, routerAt+"route.topic.regex=(.*)Order\n"+routerAt+"route.topic.replacement=$1", false, Options{}).Report.Refused(); len(refused) > 1 {
		t.Errorf("%v", refused)
	}
}

// A placeholder among the worker's settings is rejected with its line.
func TestPlaceholdersOfWorker(t *testing.T) {
	refused := imported(t, "-key.converter\n-producer.override.bootstrap.servers", false, Options{Worker: []byte("# w\nkey.converter=${KC}\nbootstrap.servers=@KAFKA@\n")}).Report.Refused()
	want := []string{"of the worker: line 2: ${KC} is a placeholder: write the value in its place", "of the worker: line 3: @KAFKA@ is a placeholder: write the value in its place, or give --brokers"}
	if len(refused) != 2 || refused[0].text != want[0] || refused[1].text != want[1] {
		t.Errorf("%v, want %q", refused, want)
	}
}

// About a file that has nothing for us there is one line, whatever else it has.
func TestOneLine(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"another connector": {"connector.class=io.debezium.connector.mysql.MySqlConnector\nslot.name=A b", "is another connector; only"},
		"a sink":            {"connector.class=io.confluent.connect.jdbc.JdbcSinkConnector", "a sink, which reads topics"},
		"no event router":   {"connector.class=PostgresConnector\nslot.name=A b\ntransforms=", "is not an outbox connector"},
		"another router":    {"connector.class=PostgresConnector\nslot.name=A b\ntransforms=a,b\ntransforms.a.type=" + extractNewState + "\ntransforms.b.type=x.MongoEventRouter", "among its transforms (" + extractNewState + ", x.MongoEventRouter)"},
		"another broker":    {"debezium.source.connector.class=PostgresConnector\ndebezium.sink.type=kinesis\ndebezium.source.slot.name=A b", `no sink "kinesis"`},
	} {
		result := importedText(t, tt.text)
		next := stepsOf(t, result)
		if f := result.Report.findings; len(f) != 1 || f[0].verdict != rejected || !strings.Contains(f[0].text, tt.want) || next != "" {
			t.Errorf("%s: %v, next %q", name, f, next)
		}
	}
}
