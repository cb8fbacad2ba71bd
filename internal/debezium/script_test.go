package debezium

import (
	"strings"
	"testing"
)

const scriptClass = `"connector.class": "io.debezium.connector.postgresql.PostgresConnector"`

// What a shell makes of a body is what Kafka Connect got.
func TestShellQuoting(t *testing.T) {
	for script, want := range map[string]string{
		`curl -d '{` + scriptClass + `, "database.hostname": "'"$PGHOST"'"}' a/connectors`:                            "${shell:PGHOST}",
		`curl -d '{` + scriptClass + `, "database.hostname": "'"${PGHOST}"'"}' a/connectors`:                          "${shell:PGHOST}",
		`curl -d '{` + scriptClass + `, "database.hostname": "'$PGHOST'"}' a/connectors`:                              "${shell:PGHOST}",
		`curl -d '{` + scriptClass + `, "database.hostname": "a'"'"'b"}' a/connectors`:                                "a'b",
		`curl -d '{` + scriptClass + `, "database.hostname": "'${PGHOST:-db}'"}' a/connectors`:                        "db",
		"cat <<EOF\n{" + scriptClass + ", \"database.hostname\": \"\\${a}\\`b\\`\\\\\\\\$c\"}\nEOF\n":                 "${a}`b`\\${shell:c}",
		"cat <<'EOF'\n{" + scriptClass + ", \"database.hostname\": \"${a}\\\\\"}\nEOF\n":                              "${a}\\",
		`curl -d "{ \` + "\n" + strings.ReplaceAll(scriptClass, `"`, `\"`) + `, \"database.hostname\": \"\${a}$B\"}"`: "${a}${shell:B}",
		"create() {\n  curl -d '{" + scriptClass + `, "database.hostname": "'$A'"}'` + "\n}\n":                        "${shell:A}",
	} {
		in, err := Parse([]byte(script))
		if err != nil {
			t.Errorf("%s: %v", script, err)
			continue
		}
		if e, _ := in.find("database.hostname"); e.value != want {
			t.Errorf("%s: %s, want %s", script, e.value, want)
		}
	}
}

// A variable of the shell is one of the relay's environment where that can have one, and a placeholder elsewhere: it is never
// taken for the router's group.
func TestShellVariables(t *testing.T) {
	in, err := Parse([]byte("cat <<EOF\n{\"name\": \"$NAME\", \"config\": {" + keysJSON("$SLOT") + `, "database.hostname": "$HOST", "transforms.outbox.route.topic.replacement": "x.${routedByValue}"}}` + "\nEOF\n"))
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
		"database.hostname": "source.dsn, with ${HOST}: set it in the environment of the relay",
		"slot.name":         "line 2: ${SLOT} is a placeholder, which the shell replaces: write the value in its place",
		"transforms.outbox.route.topic.replacement": "line 3: ${routedByValue} is a placeholder, which the shell replaces: write the value in its place, or \\${routedByValue} for the group",
	} {
		if texts[key] != want || in.Name != "" {
			t.Errorf("%s: %q, want %q; name %q", key, texts[key], want, in.Name)
		}
	}
}

// A connector that cannot be read is never left out: the other one is not converted in its place.
func TestBrokenConnectorInScript(t *testing.T) {
	script := "#!/bin/sh\ncurl -X PUT a/connectors/first/config -d '{\n  " + scriptClass + ",\n  \"slot.name\": oops\n}'\n" +
		"curl a/connectors -d '{\"name\": \"second\", \"config\": {" + keysJSON("found") + "}}'\n"
	want := "several connectors: choose one with --name, or give each its own file:\n  first (PostgresConnector): not JSON: line 4, column 16: "
	if _, err := Parse([]byte(script)); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error = %v, want %s", err, want)
	}
	if in, err := ParseNamed([]byte(script), "second"); err != nil || in.Name != "second" {
		t.Errorf("%v, error %v", in, err)
	}
	if _, err := ParseNamed([]byte(script), "first"); err == nil || !strings.HasPrefix(err.Error(), "not JSON: line 4, column 16: ") {
		t.Errorf("error = %v", err)
	}
	for text, want := range map[string]string{
		"# connector.class is set elsewhere\n":                                           "connector.class is in line 1, but not as part of",
		"services:\n  init:\n    command: |\n      curl -d '{" + scriptClass + ", x}'\n": "not JSON: line 4, column",
		"kind: ConfigMap\ndata:\n  a.json: |\n    {" + scriptClass + ", x}\n":            "in the text at line 3: not JSON: line 1, column",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error = %v, want %s", text, err, want)
		}
	}
}

// The name of a connector is in its URL or beside it. A key such as command is none.
func TestNamesOfBodies(t *testing.T) {
	body := "'{" + scriptClass + "}'"
	for text, want := range map[string]string{
		"curl -X PUT -d " + body + " \\\n  http://a/connectors/my%20orders/config\n":                           "my orders",
		"curl http://a/connectors/old/config\ncurl -X PUT http://a/connectors/orders/config -d " + body + "\n": "orders",
		"curl http://a/connectors/$NAME/config -d " + body + "\n":                                              "",
		"services: {init: {command: \"curl -d " + strings.ReplaceAll(body, `"`, `\"`) + "\"}}\n":               "",
		"a: {config: \"{" + strings.ReplaceAll(scriptClass, `"`, `\"`) + "}\"}\n":                              "",
		"- name: orders\n  config: |\n    {" + scriptClass + "}\n":                                             "orders",
	} {
		in, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if in.Name != want {
			t.Errorf("%s: name %q, want %q", text, in.Name, want)
		}
	}
}

// A Connect worker in a compose file does not hide the connector in a command beside it.
func TestWorkerBesideScript(t *testing.T) {
	in, err := Parse([]byte("services:\n  connect:\n    image: debezium/connect:3.0\n    environment: [BOOTSTRAP_SERVERS=a:1, CONFIG_STORAGE_TOPIC=c]\n" +
		"  init:\n    image: curlimages/curl\n    command: >\n      curl -X POST http://connect:8083/connectors -H 'Content-Type: application/json'\n" +
		"      -d '{\"name\": \"orders\", \"config\": {" + strings.ReplaceAll(keysJSON("found"), "\n", " ") + "}}'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if in.Name != "orders" || in.worker == nil {
		t.Errorf("name %q, worker %v", in.Name, in.worker)
	}
}

// Every form has the lines of its file, also in a text inside.
func TestLines(t *testing.T) {
	for text, want := range map[string]int{
		"# c\nconnector.class=PostgresConnector\nslot.name=\\\n  x\n":                                                                     3,
		"debezium.source.connector.class=PostgresConnector\ndebezium.source.slot.name=x\n":                                                2,
		"DEBEZIUM_SOURCE_CONNECTOR_CLASS=PostgresConnector\n\nDEBEZIUM_SOURCE_SLOT_NAME=x\n":                                              3,
		"services:\n  a:\n    environment:\n    - DEBEZIUM_SOURCE_CONNECTOR_CLASS=PostgresConnector\n    - DEBEZIUM_SOURCE_SLOT_NAME=x\n": 5,
		"#!/bin/sh\ncurl -d '{\n" + scriptClass + ",\n\"slot.name\": \"x\"}' a/connectors\n":                                              4,
		"data:\n  a.properties: |\n    connector.class=PostgresConnector\n    slot.name=x\n":                                              4,
		"data:\n  a.json: \"{\\\"slot.name\\\": 1,\\n" + strings.ReplaceAll(scriptClass, `"`, `\"`) + "}\"\n":                             2,
	} {
		in, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if e, _ := in.find("slot.name"); e.line != want {
			t.Errorf("%s: line %d, want %d", text, e.line, want)
		}
	}
}
