package debezium

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// tokenEndpoint is the option with the URL of the token endpoint.
const tokenEndpoint = "sasl.oauthbearer.token.endpoint.url" //nolint:gosec // an option's name

// producerPrefix is the prefix of a connector's settings for its producer. Those of the worker start with
// "producer.".
const producerPrefix = "producer.override."

func producerRules() []rule {
	rules := []rule{
		{
			key: producerPrefix + "bootstrap.servers", ours: "sink.kafka.brokers", verdicts: []verdict{same, rejected},
			doc:    "The same: from the worker's properties (`--worker`), or `--brokers`.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.brokers(e.value) },
			absent: func(m *mapping) (verdict, string) { return m.brokers("") },
		},
		choices(producerPrefix+"compression.type", "sink.kafka.compression", map[string]string{"none": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
			func(m *mapping) *string { return &m.out.Sink.Kafka.Compression }),
		{
			key: producerPrefix + "client.id", ours: "sink.kafka.client_id", verdicts: []verdict{same, partial}, doc: "The same, in allowed characters.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if m.out.Sink.Kafka.ClientID = relayName(e.value); m.out.Sink.Kafka.ClientID != e.value {
					return partial, "sink.kafka.client_id: " + m.out.Sink.Kafka.ClientID
				}
				return same, "sink.kafka.client_id"
			},
		},
		{
			key: producerPrefix + "max.request.size", ours: "sink.kafka.max_message_bytes", verdicts: []verdict{same, rejected}, doc: "The same. Without it the relay uses the topic's limit; Java's producer uses 1 MiB.",
			apply: func(m *mapping, e entry) (verdict, string) {
				n, refusal := number(e, 1)
				if refusal != "" {
					return rejected, refusal
				}
				m.out.Sink.Kafka.MaxMessageBytes = n
				return same, fmt.Sprintf("sink.kafka.max_message_bytes: %d", n)
			},
		},
		{
			key: producerPrefix + "acks", verdicts: []verdict{noted, partial}, doc: "Always `all`.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if e.value == "all" || e.value == "-1" {
					return noted, "always"
				}
				return partial, "always all"
			},
		},
		{
			key: producerPrefix + "partitioner.class", verdicts: []verdict{noted, rejected}, doc: "Kafka's default, which hashes the key.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if e.value == "" || e.value == "org.apache.kafka.clients.producer.internals.DefaultPartitioner" {
					return noted, "sink.kafka.partitioner: murmur2, the default"
				}
				return rejected, "another partitioner maps keys to other partitions; only Kafka's default is supported"
			},
		},
		only(producerPrefix+"partitioner.ignore.keys", false, "The key determines the partition.", "records of one key would go to any partition, in any order"),
		{
			key: producerPrefix + "interceptor.classes", verdicts: []verdict{noted, partial, rejected},
			doc: "Interceptors for monitoring and tracing are not required: the relay has metrics, `outbox.columns.trace_context` and `tracing.endpoint`. Others are Java code.", apply: applyInterceptors,
		},
		note(producerPrefix+"confluent.monitoring.*", "An option of an interceptor."),
	}
	for _, key := range []string{
		"linger.ms", "batch.size", "buffer.memory", "max.block.ms", "max.in.flight.requests.per.connection", "retries", "retry.backoff.*", "delivery.timeout.ms", "request.timeout.ms",
		"enable.idempotence", "transaction*", "key.serializer", "value.serializer", "send.buffer.bytes", "receive.buffer.bytes", "connections.max.idle.ms", "reconnect.*",
		"metadata.*", "metric*", "socket.*", "compression.*", "partitioner.*", "client.dns.lookup", "client.rack", "enable.metrics.push",
	} {
		rules = append(rules, note(producerPrefix+key, "The relay has its own producer: idempotent, batches without delay, unlimited retries."))
	}
	return append(rules, securityRules()...)
}

// brokers sets the brokers from the first of these that has them: the command line, the connector, the worker.
func (m *mapping) brokers(own string) (verdict, string) {
	servers, from := own, ""
	switch worker := cmp.Or(m.worker["producer.bootstrap.servers"], m.worker["bootstrap.servers"]); {
	case len(m.opts.Brokers) > 0:
		servers, from = strings.Join(m.opts.Brokers, ","), ", as --brokers says"
	case own != "":
	case unfilled(worker) != "":
		return rejected, "of the worker: " + worker.where() + unfilled(worker) + ", or give --brokers"
	default:
		servers, from = worker.value, ", of the worker"
	}
	list := splitList(servers)
	if len(list) == 0 && m.embedded() {
		return rejected, "the program with Debezium's engine knows the brokers: give --brokers host:port"
	}
	if len(list) == 0 {
		return rejected, "the Connect worker knows the brokers: give its properties with --worker, or --brokers host:port"
	}
	for _, server := range list {
		if i := strings.Index(server, "://"); i >= 0 {
			server = server[i+len("://"):]
		}
		_, port, _ := net.SplitHostPort(server)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || !compileOnce(`^(\[[0-9A-Fa-f:.]+\]|[^\s:/,$\[\]]+):\d{1,5}$`).MatchString(server) {
			return rejected, "not a list of host:port" + from + ": give it with --brokers"
		}
		m.out.Sink.Kafka.Brokers = append(m.out.Sink.Kafka.Brokers, server)
	}
	return same, "sink.kafka.brokers: " + strings.Join(m.out.Sink.Kafka.Brokers, ", ") + from
}

// applyInterceptors imports interceptors of known libraries. Those for tracing add a trace header to each record.
func applyInterceptors(_ *mapping, e entry) (verdict, string) {
	v, text := noted, "for monitoring: the relay has its own metrics (admin.listen)"
	for _, class := range splitList(e.value) {
		switch {
		case class == "io.confluent.monitoring.clients.interceptor.MonitoringProducerInterceptor":
		case slices.Contains([]string{
			"io.debezium.tracing.DebeziumTracingProducerInterceptor", "io.opentracing.contrib.kafka.TracingProducerInterceptor",
			"io.opentelemetry.instrumentation.kafkaclients.TracingProducerInterceptor", "io.opentelemetry.instrumentation.kafkaclients.v2_6.TracingProducerInterceptor",
		}, class):
			v, text = partial, "for tracing: set outbox.columns.trace_context to the column with the trace context, for the header traceparent, and tracing.endpoint for spans; without them, records have no trace headers"
		default:
			return rejected, class + " is Java code, and may change records; remove it if it does not, or keep Debezium"
		}
	}
	return v, text
}

// withWorker adds the worker's settings for producers to the entries, except those that the connector sets.
func (m *mapping) withWorker() {
	for key, e := range m.worker {
		option, ok := strings.CutPrefix(key, "producer.")
		if !ok || option == "bootstrap.servers" || m.has(producerPrefix+option) {
			continue
		}
		e.key = producerPrefix + option
		m.entries[e.key] = e
	}
}

func securityRules() []rule {
	rules := []rule{
		{
			key: producerPrefix + "security.protocol", ours: "sink.kafka.tls.enabled", verdicts: []verdict{same, rejected}, doc: "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch strings.ToUpper(e.value) {
				case "PLAINTEXT", "SASL_PLAINTEXT":
					m.tls().Enabled = false
				case "SSL", "SASL_SSL":
					m.tls().Enabled = true
				default:
					return rejected, fmt.Sprintf("%q is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", e.value)
				}
				return same, fmt.Sprintf("sink.kafka.tls.enabled: %t", m.tls().Enabled)
			},
		},
		{key: producerPrefix + "sasl.mechanism", ours: "sink.kafka.sasl.mechanism", verdicts: []verdict{same, rejected}, doc: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER with a client's secret, AWS_MSK_IAM.", apply: applyMechanism},
		{key: producerPrefix + "sasl.jaas.config", ours: "sink.kafka.sasl", verdicts: []verdict{same, rejected}, doc: "User and password, or client id and secret; `${provider:…}` becomes `${NAME}`.", apply: applyJAAS},
		{
			key: producerPrefix + tokenEndpoint, ours: "sink.kafka.sasl.token_url", verdicts: []verdict{same, noted}, doc: "The same, for OAUTHBEARER.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if m.value(producerPrefix+"sasl.mechanism") != "OAUTHBEARER" {
					return noted, "has no effect without sasl.mechanism=OAUTHBEARER"
				}
				m.sasl().TokenURL = e.value
				return same, "sink.kafka.sasl.token_url"
			},
		},
		{
			key: producerPrefix + "sasl.client.callback.handler.class", verdicts: []verdict{noted, rejected}, doc: "Amazon's for AWS_MSK_IAM.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if e.value == "software.amazon.msk.auth.iam.IAMClientCallbackHandler" {
					return noted, "built in"
				}
				return rejected, "Java code for logins is not supported; see sink.kafka.sasl"
			},
		},
		{
			key: producerPrefix + "sasl.login.callback.handler.class", verdicts: []verdict{noted, rejected}, doc: "Kafka's for OAUTHBEARER.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if strings.HasSuffix(e.value, ".OAuthBearerLoginCallbackHandler") && strings.HasPrefix(e.value, "org.apache.kafka.") {
					return noted, "built in"
				}
				return rejected, "Java code for logins is not supported; see sink.kafka.sasl"
			},
		},
		refuse(producerPrefix+"sasl.kerberos.*", "Kerberos is not supported."),
		note(producerPrefix+"sasl.*", "The relay has its own login."),
	}
	rules = append(rules, storeRules()...)
	return append(rules, note(producerPrefix+"security.*", "A setting of the Java process."))
}

// storeRules returns the rules for certificates and keys.
func storeRules() []rule {
	pem := func(option, ours string, set func(*tlsFile, string)) rule {
		return rule{
			key: producerPrefix + option, ours: ours, verdicts: []verdict{same, rejected}, doc: "A PEM file. Export a Java keystore.",
			apply: func(m *mapping, e entry) (verdict, string) {
				store := strings.TrimSuffix(option, "location")
				if !strings.EqualFold(m.value(producerPrefix+store+"type"), "PEM") {
					return rejected, fmt.Sprintf("a Java keystore cannot be read: export it to PEM (keytool -exportcert -rfc, or openssl pkcs12), and set %stype=PEM", store)
				}
				set(m.tls(), e.value)
				return same, ours
			},
		}
	}
	return []rule{
		pem("ssl.truststore.location", "sink.kafka.tls.ca_file", func(t *tlsFile, path string) { t.CAFile = path }),
		pem("ssl.keystore.location", "sink.kafka.tls.cert_file", func(t *tlsFile, path string) { t.CertFile, t.KeyFile = path, path }),
		refuse(producerPrefix+"ssl.truststore.certificates", "Certificates in the configuration. Put them into a file, and use ssl.truststore.location."),
		refuse(producerPrefix+"ssl.keystore.certificate.chain", "A certificate in the configuration. Put it into a file with its key, and use ssl.keystore.location."),
		refuse(producerPrefix+"ssl.keystore.key", "A key in the configuration. Put it into a file with its certificate, and use ssl.keystore.location."),
		refuse(producerPrefix+"ssl.key.password", "An encrypted key cannot be read: decrypt it (openssl pkcs8 -in key.pem -out plain.pem)."),
		note(producerPrefix+"ssl.truststore.*", "Part of the verdict on `ssl.truststore.location`."),
		note(producerPrefix+"ssl.keystore.*", "Part of the verdict on `ssl.keystore.location`."),
		{
			key: producerPrefix + "ssl.endpoint.identification.algorithm", verdicts: []verdict{noted, partial}, doc: "The relay always verifies the names of brokers.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if e.value != "" {
					return noted, "always verified"
				}
				return partial, "the brokers' names are verified: if the certificates carry another, write it as sink.kafka.tls.server_name"
			},
		},
		refuse(producerPrefix+"ssl.engine.factory.class", "Java code for TLS is not supported."),
		note(producerPrefix+"ssl.*", "TLS 1.2 or later, as negotiated."),
	}
}

func (m *mapping) tls() *tlsFile {
	if m.out.Sink.Kafka.TLS == nil {
		m.out.Sink.Kafka.TLS = &tlsFile{}
	}
	return m.out.Sink.Kafka.TLS
}

func (m *mapping) sasl() *saslFile {
	if m.out.Sink.Kafka.SASL == nil {
		m.out.Sink.Kafka.SASL = &saslFile{}
	}
	return m.out.Sink.Kafka.SASL
}

func applyMechanism(m *mapping, e entry) (verdict, string) {
	if !slices.Contains([]string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"}, e.value) {
		return rejected, fmt.Sprintf("%q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM", e.value)
	}
	if !strings.HasPrefix(strings.ToUpper(m.value(producerPrefix+"security.protocol")), "SASL_") {
		return rejected, "has no effect: security.protocol is not SASL_SSL or SASL_PLAINTEXT"
	}
	m.sasl().Mechanism = e.value
	if e.value == "OAUTHBEARER" && !m.has(producerPrefix+tokenEndpoint) {
		return rejected, tokenEndpoint + " is required too"
	}
	if e.value == "AWS_MSK_IAM" {
		servers := strings.Join(m.out.Sink.Kafka.Brokers, ",")
		region := compileOnce(`\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com`).FindStringSubmatch(servers)
		if region == nil {
			return rejected, "the region is not part of the brokers' names: use the names that Amazon gives them"
		}
		m.sasl().Region = region[1]
	} else if !m.has(producerPrefix + "sasl.jaas.config") {
		return rejected, "sasl.jaas.config is required too"
	}
	return same, "sink.kafka.sasl.mechanism: " + e.value
}

// applyJAAS imports the options of the login module: https://kafka.apache.org/documentation/#security_sasl_jaasconfig
func applyJAAS(m *mapping, e entry) (verdict, string) {
	options := make(map[string]string)
	for _, o := range compileOnce(`([A-Za-z_.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;"'][^\s;]*)`).FindAllStringSubmatch(e.value, -1) {
		value := o[2]
		if quote := value[0]; quote == '"' || quote == '\'' {
			value = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(value[1 : len(value)-1])
		}
		options[o[1]] = value
	}
	var names []string
	fill := func(field *string, option, purpose string) bool {
		value, used := m.refs.placeholders(options[option], "kafka."+purpose)
		*field = value
		names = append(names, used...)
		return value != ""
	}
	s := m.sasl()
	switch mechanism := m.value(producerPrefix + "sasl.mechanism"); mechanism {
	case "AWS_MSK_IAM":
		return same, "with the credentials that all of AWS's tools find"
	case "OAUTHBEARER":
		if !fill(&s.ClientID, "clientId", "client.id") || !fill(&s.ClientSecret, "clientSecret", "client.secret") {
			return rejected, "clientId and clientSecret are required"
		}
		s.Scopes = strings.Fields(options["scope"])
	case "":
		return rejected, "sasl.mechanism is required too (GSSAPI, the default, is not supported)"
	default:
		if !fill(&s.User, "username", "user") || !fill(&s.Password, "password", "password") {
			return rejected, "username and password are required"
		}
	}
	if len(names) > 0 {
		return same, "sink.kafka.sasl" + setThem(names)
	}
	return same, "sink.kafka.sasl, as it is: let only the relay's user read the file, or move the secret to a file of its own"
}
