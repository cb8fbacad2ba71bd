package debezium

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A worker has the settings of a Kafka Connect worker.
type worker struct {
	name     string // in the file; may be empty
	pairs    []pair
	findings []Finding // about settings that are no properties
	steps    []string  // what to do before the relay can use them
	broken   error     // the settings are there, and cannot be read
}

// check sets broken if a setting is a template. text is the file with the worker.
func (w *worker) check(text string) {
	if w.broken != nil || slices.ContainsFunc(w.pairs, func(p pair) bool { return strings.Contains(p.value, "{{") }) {
		w.broken = cmp.Or(templated(text), w.broken)
	}
}

// parseWorker parses the settings of a worker: its properties, its environment, or a compose file or resource of Kubernetes
// that has it.
func parseWorker(data []byte) (*worker, error) {
	if !utf8.Valid(data) {
		return nil, errNotText
	}
	text := string(data)
	w, err := findWorker(text)
	if err != nil {
		return nil, cmp.Or(templated(text), err)
	}
	w.check(text)
	return w, w.broken
}

// findWorker returns the worker in a text.
func findWorker(text string) (*worker, error) {
	var f finder
	broken := f.documents(text, "", !strings.HasPrefix(strings.TrimSpace(text), "{"))
	if len(f.workers) == 0 {
		f.noteDefaults(text, f.line)
		f.commands(text)
	}
	switch {
	case len(f.workers) == 1:
		return f.workers[0], nil
	case len(f.workers) > 1:
		var names []string
		for _, w := range f.workers {
			names = append(names, cmp.Or(w.name, "one without a name"))
		}
		return nil, fmt.Errorf("several Connect workers: %s; give a file with the one of the connector", strings.Join(names, ", "))
	case compileOnce(`(?m)^\s*(export\s+)?(CONNECT_\w+|BOOTSTRAP_SERVERS|KEY_CONVERTER|VALUE_CONVERTER)=`).MatchString(text):
		return workerOfVariables(linesOfVariables(text), "", ""), nil
	case broken == nil && compileOnce(`(?m)^(services|kind):`).MatchString(text):
		return nil, errors.New("no Connect worker: import reads worker properties, a KafkaConnect, and the environment of a container" +
			" (CONNECT_…, or BOOTSTRAP_SERVERS and KEY_CONVERTER of Debezium's image)")
	case broken != nil && looksLikeYAML(text):
		return nil, broken
	}
	pairs, err := parseProperties(text)
	return &worker{pairs: pairs}, err
}

// readWorker reads the settings of the worker: those of the options, or those in the connector's file.
func (m *mapping) readWorker() error {
	w := m.in.worker
	if m.opts.Worker != nil {
		var err error
		if w, err = parseWorker(m.opts.Worker); err != nil {
			return err
		}
	}
	if w == nil || m.in.server {
		return nil
	}
	if w.broken != nil {
		return w.broken
	}
	for _, p := range w.pairs {
		m.worker[p.key] = entry{key: p.key, shown: p.key + " (worker)", value: strings.TrimSpace(p.value), line: p.line}
	}
	m.report.findings = append(m.report.findings, w.findings...)
	m.report.before = append(m.report.before, w.steps...)
	return nil
}

// embedded reports whether the keys are those of Debezium's engine in a program. Among the keys of Kafka Connect,
// offset.storage has no effect.
func (m *mapping) embedded() bool {
	return m.has("offset.storage") && (m.in.form == formProperties || m.in.form == formYAML)
}

// noConverter says that neither the connector nor the worker has a converter.
func (m *mapping) noConverter() string {
	if m.embedded() {
		return "the program with Debezium's engine converts the records: write the converter whose bytes it sends"
	}
	if len(m.worker) > 0 {
		return "neither the connector nor the worker's settings name it, and without it a worker does not start: are these the settings of the connector's worker?"
	}
	return "the Connect worker decides, and with it every byte: give its properties, environment or KafkaConnect with --worker"
}

// isWorkerVariable reports whether a variable configures a Connect worker.
func isWorkerVariable(name string) bool {
	return slices.Contains([]string{"CONNECT_BOOTSTRAP_SERVERS", "CONNECT_KEY_CONVERTER", "CONNECT_VALUE_CONVERTER", "CONNECT_GROUP_ID", "CONFIG_STORAGE_TOPIC"}, name)
}

// workerOfVariables returns the worker in a container. CONNECT_A_B is the property a.b in all images. Debezium's image
// (quay.io/debezium/connect, its docker-entrypoint.sh) sets some of these variables itself, from others without the prefix.
func workerOfVariables(vars []pair, image, name string) *worker {
	w := &worker{name: name}
	own := map[string]pair{"BOOTSTRAP_SERVERS": {}, "KEY_CONVERTER": {value: jsonConverter}, "VALUE_CONVERTER": {value: jsonConverter}}
	debezium := strings.Contains(image, "debezium/connect")
	for _, v := range vars {
		_, ofImage := own[v.key]
		debezium = debezium || ofImage || v.key == "CONFIG_STORAGE_TOPIC"
	}
	for _, v := range vars {
		property, ok := strings.CutPrefix(v.key, "CONNECT_")
		fallback, ofImage := own[property]
		switch {
		case ok && debezium && ofImage:
			w.note(v.key, "no effect: Debezium's image sets it to the value of "+property+", which is by default "+cmp.Or(fallback.value, "0.0.0.0:9092"))
		case ok:
			w.pairs = append(w.pairs, pair{strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(property)), v.value, v.line})
		case debezium && strings.HasSuffix(v.key, "_CONVERTER_SCHEMAS_ENABLE"):
			w.note(v.key, "no effect: Debezium's image knows only CONNECT_"+v.key)
		default:
			if _, ok := own[v.key]; ok {
				own[v.key] = v
			}
		}
	}
	if debezium {
		for _, v := range []string{"BOOTSTRAP_SERVERS", "KEY_CONVERTER", "VALUE_CONVERTER"} {
			w.pairs = append(w.pairs, pair{strings.ToLower(strings.ReplaceAll(v, "_", ".")), own[v].value, own[v].line})
		}
	}
	return w
}

func (w *worker) note(key, text string) {
	w.findings = append(w.findings, Finding{key: key + " (worker)", verdict: noted, text: text})
}

// workerOfStrimzi returns the worker of a KafkaConnect. Its default converters are those of Strimzi.
func workerOfStrimzi(n *yaml.Node) *worker {
	spec := child(n, "spec")
	w := &worker{name: textOf(child(n, "metadata"), "name")}
	for _, m := range membersOf(child(spec, "config")) {
		if text, ok := scalar(m.value); ok {
			w.pairs = append(w.pairs, pair{m.key, text, m.line})
		} else if m.value.Kind != yaml.ScalarNode {
			w.broken = cmp.Or(w.broken, noText(m, "spec.config."))
		}
	}
	w.broken = cmp.Or(w.broken, templateIn(n))
	for _, converter := range []string{"key.converter", "value.converter"} {
		if !slices.ContainsFunc(w.pairs, func(p pair) bool { return p.key == converter }) {
			w.pairs = append(w.pairs, pair{key: converter, value: jsonConverter})
		}
	}
	w.pairs = append(w.pairs, pair{key: "bootstrap.servers", value: textOf(spec, "bootstrapServers")})
	w.secureStrimzi(child(spec, "tls"), child(spec, "authentication"))
	return w
}

// The files into which the user writes the certificates of the operator's secrets.
const (
	strimziCA     = "kafka-ca.crt"
	strimziClient = "kafka-client.pem"
)

// secureStrimzi adds the producer's settings that the operator makes of spec.tls and spec.authentication:
// https://strimzi.io/docs/operators/latest/configuring.html#type-KafkaConnectSpec-reference
func (w *worker) secureStrimzi(tls, login *yaml.Node) {
	if tls.Kind == 0 && login.Kind == 0 {
		return
	}
	set := func(key, value string) { w.pairs = append(w.pairs, pair{key: "producer." + key, value: value}) }
	store := func(option, file string) {
		set(option+".type", "PEM")
		set(option+".location", file)
	}
	protocol, plain := "SSL", "PLAINTEXT"
	switch kind := textOf(login, "type"); kind {
	case "", "tls":
	default:
		protocol, plain = "SASL_SSL", "SASL_PLAINTEXT"
		w.login(kind, login, set)
	}
	if tls.Kind == 0 {
		protocol = plain
	}
	set("security.protocol", protocol)
	if ca := child(tls, "trustedCertificates").Content; len(ca) > 0 {
		store("ssl.truststore", strimziCA)
		for i, c := range ca {
			w.secretFile(textOf(c, "secretName"), cmp.Or(textOf(c, "certificate"), textOf(c, "pattern")), strimziCA, i > 0)
		}
	}
	if pair := child(login, "certificateAndKey"); pair.Kind != 0 {
		store("ssl.keystore", strimziClient)
		w.secretFile(textOf(pair, "secretName"), textOf(pair, "certificate"), strimziClient, false)
		w.secretFile(textOf(pair, "secretName"), textOf(pair, "key"), strimziClient, true)
	}
}

// secretFile adds the step that writes the keys of a Kubernetes secret that match a pattern with * to a file.
func (w *worker) secretFile(secret, pattern, file string, more bool) {
	into := ">"
	if more {
		into = ">>"
	}
	read := fmt.Sprintf(`-o jsonpath='{.data.%s}' | base64 -d`, strings.ReplaceAll(pattern, ".", `\.`))
	if strings.Contains(pattern, "*") {
		expression := strconv.Quote("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		read = fmt.Sprintf(`-o json | jq -r '.data | to_entries[] | select(.key | test(%s)) | .value | @base64d'`, expression)
	}
	w.steps = append(w.steps, fmt.Sprintf(`write the file %s: kubectl get secret %s %s %s %s`, file, secret, read, into, file))
}

// login adds the settings of a login other than by certificate.
func (w *worker) login(kind string, n *yaml.Node, set func(key, value string)) {
	secret := func(field, key string) string {
		s := child(n, field)
		return `"${secrets:` + textOf(s, "secretName") + ":" + textOf(s, key) + `}"`
	}
	user := `username="` + textOf(n, "username") + `" password=` + secret("passwordSecret", "password") + ";"
	switch kind {
	case "plain":
		set("sasl.mechanism", "PLAIN")
		set("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required "+user)
	case "scram-sha-256", "scram-sha-512":
		set("sasl.mechanism", strings.ToUpper(kind))
		set("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required "+user)
	case "oauth":
		set("sasl.mechanism", "OAUTHBEARER")
		set(tokenEndpoint, textOf(n, "tokenEndpointUri"))
		set("sasl.jaas.config", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"+
			` clientId="`+textOf(n, "clientId")+`" clientSecret=`+secret("clientSecret", "key")+` scope="`+textOf(n, "scope")+`";`)
	default:
		w.findings = append(w.findings, Finding{
			key: "spec.authentication.type (worker)", verdict: rejected,
			text: fmt.Sprintf("login %q is not supported: give worker properties with producer.security.protocol, producer.sasl.… and producer.ssl.… instead", kind),
		})
	}
}
