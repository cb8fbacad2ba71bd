package debezium

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// workerOf returns the settings of a worker as lines.
func workerOf(t *testing.T, text string) (lines []string, w *worker) {
	t.Helper()
	w, err := parseWorker([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, p := range w.pairs {
		lines = append(lines, p.key+"="+p.value)
	}
	slices.Sort(lines)
	return lines, w
}

// The settings of a worker come from where people have them.
func TestWorkers(t *testing.T) {
	ofImage := []string{"bootstrap.servers=kafka:9092", "key.converter=" + jsonConverter, "value.converter.schemas.enable=false", "value.converter=" + stringConverter}
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"properties": {"bootstrap.servers=kafka:9092\nkey.converter=a.B\n", []string{"bootstrap.servers=kafka:9092", "key.converter=a.B"}},
		".env of Confluent's image": {
			"# worker\nCONNECT_BOOTSTRAP_SERVERS=kafka:9092\nexport CONNECT_KEY_CONVERTER=\"a.B\" # c\nCONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE=false # \"off\"\nCONNECT_A__B___C=d\n",
			[]string{"a_b-c=d", "bootstrap.servers=kafka:9092", "key.converter=a.B", "value.converter.schemas.enable=false"},
		},
		"compose file of Debezium's image": {
			"services:\n  kafka:\n    image: quay.io/debezium/kafka\n    environment: [CLUSTER_ID=x]\n  connect:\n    image: quay.io/debezium/connect:3.0\n    environment:\n" +
				"      BOOTSTRAP_SERVERS: kafka:9092\n      CONFIG_STORAGE_TOPIC: configs\n      VALUE_CONVERTER: " + stringConverter + "\n      CONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE: 'false'\n",
			ofImage,
		},
		"the same as a list, beside the user interface": {
			"services:\n  connect:\n    image: debezium/connect:1.9\n    environment:\n      - BOOTSTRAP_SERVERS=${KAFKA:-kafka:9092}\n      - CONFIG_STORAGE_TOPIC=configs\n" +
				"      - VALUE_CONVERTER=" + stringConverter + "\n      - CONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE=false\n  ui: {image: debezium/debezium-ui, environment: {KAFKA_CONNECT_URIS: x}}\n",
			ofImage,
		},
		"docker run": {
			"docker run -d --name connect \\\n  -e BOOTSTRAP_SERVERS=\"${KAFKA:-kafka:9092}\" -e CONFIG_STORAGE_TOPIC=configs --env=VALUE_CONVERTER=" + stringConverter +
				" \\\n  -e 'CONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE=false' quay.io/debezium/connect:3.0 && echo -e CONNECT_A=b\n",
			ofImage,
		},
		"nerdctl run among other commands": {
			"set -e\nnerdctl run -e POSTGRES_PASSWORD=x postgres\nnerdctl container run -eCONNECT_BOOTSTRAP_SERVERS=kafka:9092 confluentinc/cp-kafka-connect; sleep 1\n",
			[]string{"bootstrap.servers=kafka:9092"},
		},
		"Kubernetes": {
			"kind: Deployment\nspec: {template: {spec: {containers: [{name: c, image: confluentinc/cp-kafka-connect, env: [{name: CONNECT_BOOTSTRAP_SERVERS, value: 'kafka:9092'}]}]}}}\n",
			[]string{"bootstrap.servers=kafka:9092"},
		},
		"KafkaConnect with Strimzi's default converters": {
			"kind: KafkaConnect\nspec:\n  bootstrapServers: kafka:9092\n  config:\n    value.converter: " + stringConverter + "\n    offset.flush.interval.ms: 1000\n",
			[]string{"bootstrap.servers=kafka:9092", "key.converter=" + jsonConverter, "offset.flush.interval.ms=1000", "value.converter=" + stringConverter},
		},
		"KafkaConnect with TLS and a password": {
			"kind: KafkaConnect\nspec:\n  bootstrapServers: kafka:9093\n  tls:\n    trustedCertificates:\n      - {secretName: my-ca, certificate: ca.crt}\n" +
				"  authentication: {type: scram-sha-512, username: connect, passwordSecret: {secretName: connect, password: pw}}\n",
			[]string{
				"bootstrap.servers=kafka:9093", "key.converter=" + jsonConverter,
				`producer.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="connect" password="${secrets:connect:pw}";`,
				"producer.sasl.mechanism=SCRAM-SHA-512", "producer.security.protocol=SASL_SSL",
				"producer.ssl.truststore.location=kafka-ca.crt", "producer.ssl.truststore.type=PEM", "value.converter=" + jsonConverter,
			},
		},
	} {
		got, _ := workerOf(t, tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Debezium's image sets some variables itself, whatever the user gives, and ignores others.
func TestVariablesWithoutEffect(t *testing.T) {
	got, w := workerOf(t, "BOOTSTRAP_SERVERS=kafka:9092\nCONNECT_KEY_CONVERTER="+stringConverter+"\nVALUE_CONVERTER_SCHEMAS_ENABLE=false\n")
	if diff := cmp.Diff([]string{"bootstrap.servers=kafka:9092", "key.converter=" + jsonConverter, "value.converter=" + jsonConverter}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := []Finding{
		{"CONNECT_KEY_CONVERTER (worker)", noted, "no effect: Debezium's image sets it to the value of KEY_CONVERTER, which is by default " + jsonConverter},
		{"VALUE_CONVERTER_SCHEMAS_ENABLE (worker)", noted, "no effect: Debezium's image knows only CONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE"},
	}
	if diff := cmp.Diff(want, w.findings, cmp.AllowUnexported(Finding{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the TLS part of a KafkaConnect is, the configuration loads when the files exist, or the report names what is
// missing.
func TestStrimziSecurity(t *testing.T) {
	in, err := Parse([]byte(strings.ReplaceAll(base, "producer.override.bootstrap.servers=localhost:9092\n", "")))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		tls, yaml string
		steps     int
	}{
		"TLS with the system's certificates": {"  tls: {trustedCertificates: []}", "tls:\n      enabled: true\n", 0},
		"client certificate": {
			"  tls: {trustedCertificates: [{secretName: a, certificate: ca.crt}, {secretName: b, pattern: '*.crt'}]}\n  authentication: {type: tls, certificateAndKey: {secretName: c, certificate: c.crt, key: c.key}}",
			"cert_file: kafka-client.pem", 4,
		},
		"plain without TLS": {"  authentication: {type: plain, username: u, passwordSecret: {secretName: s, password: p}}", "password: ${KAFKA_PASSWORD}", 0},
		"OAuth":             {"  tls: {}\n  authentication: {type: oauth, tokenEndpointUri: 'https://id/token', clientId: c, clientSecret: {secretName: s, key: k}, scope: w}", "token_url: https://id/token", 0},
		"another login":     {"  authentication: {type: custom}", "", 0},
	} {
		result, err := Import(in, Options{Worker: []byte("kind: KafkaConnect\nspec:\n  bootstrapServers: k:9092\n" + tt.tls + "\n")})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(tt.tls, "pattern") && !slices.Contains(result.Report.before,
			`write the file kafka-ca.crt: kubectl get secret b -o json | jq -r '.data | to_entries[] | select(.key | test("^.*\\.crt$")) | .value | @base64d' >> kafka-ca.crt`) {
			t.Errorf("%s: steps %q", name, result.Report.before)
		}
		if tt.yaml == "" {
			if refused := result.Report.Refused(); len(refused) != 1 || !strings.Contains(refused[0].text, `login "custom" is not supported`) {
				t.Errorf("%s: %v", name, refused)
			}
			continue
		}
		if !strings.Contains(string(result.YAML), tt.yaml) || len(result.Report.before) != tt.steps {
			t.Errorf("%s: steps %q, rejected %v\n%s", name, result.Report.before, result.Report.Refused(), result.YAML)
		} else if tt.steps == 0 {
			loads(t, name, result)
		}
	}
}

// A worker in the connector's own file counts, and one that is given counts more.
func TestWorkerBesideConnector(t *testing.T) {
	text := "kind: KafkaConnect\nspec: {bootstrapServers: 'mine:9092'}\n---\nkind: KafkaConnector\nmetadata: {name: a}\nspec: {class: PostgresConnector, config: {transforms: x}}\n"
	in, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for want, opts := range map[string]Options{"mine:9092, of the worker": {}, "given:9092, of the worker": {Worker: []byte("bootstrap.servers=given:9092")}} {
		result, err := Import(in, opts)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(result.Report.findings, func(f Finding) bool { return f.text == "sink.kafka.brokers: "+want }) {
			t.Errorf("%s: %v", want, result.Report.findings)
		}
	}
}

// A template in a worker's settings is an error, in a file of its own and beside a connector. Without quotes it is YAML for
// a map, and the default of the converter must not count in its place.
func TestTemplatedWorker(t *testing.T) {
	const strimzi = "kind: KafkaConnect\nspec:\n  bootstrapServers: a:1\n"
	for text, want := range map[string]string{
		strimzi + "  config:\n    key.converter: {{ .Values.kc }}\n":                                                             "line 5: {{ .Values.kc }}",
		strimzi + "  tls: {{ .Values.tls }}\n":                                                                                   "line 4: {{ .Values.tls }}",
		strimzi + "{{- if .Values.tls }}\n  tls: {}\n{{- end }}\n":                                                               "line 4: {{- if .Values.tls }}\n  line 6: {{- end }}",
		strimzi + "  config:\n    key.converter: [a]\n":                                                                          "line 5: spec.config.key.converter: a text is required",
		"bootstrap.servers=a:1\nkey.converter={{ kc }}\n":                                                                        "line 2: {{ kc }}",
		"services:\n  connect:\n    environment:\n      CONNECT_BOOTSTRAP_SERVERS: a:1\n      CONNECT_KEY_CONVERTER: {{ kc }}\n": "line 5: {{ kc }}",
	} {
		if _, err := parseWorker([]byte(text)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error = %v, want %s", text, err, want)
		}
		in, err := Parse([]byte(text + "---\nkind: KafkaConnector\nspec: {class: PostgresConnector, config: {transforms: x}}\n"))
		if err == nil {
			_, err = Import(in, Options{})
		}
		if strings.HasPrefix(text, "bootstrap") {
			continue
		}
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s, beside a connector: error = %v, want %s", text, err, want)
		}
	}
}

func TestNoWorker(t *testing.T) {
	for text, want := range map[string]string{
		"services:\n  a: {environment: {CONNECT_KEY_CONVERTER: x}}\n  b: {environment: {CONNECT_KEY_CONVERTER: hunter2}}\n": "several Connect workers: a, b",
		"services:\n  db: {image: postgres, environment: {PASSWORD: hunter2}}\n":                                            "no Connect worker",
		"kind: KafkaConnect\nspec:\n  config: {a: b\n":                                                                      "not YAML: broken at line",
		"a=\xff": "not text",
	} {
		if _, err := parseWorker([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error = %v, want %s", text, err, want)
		}
	}
	result := imported(t, "-key.converter", false, Options{Worker: []byte("bootstrap.servers=a:1")})
	if refused := result.Report.Refused(); len(refused) != 1 || !strings.Contains(refused[0].text, "neither the connector nor the worker's settings name it") {
		t.Errorf("%v", refused)
	}
}
