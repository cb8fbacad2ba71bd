package debezium

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Names of Debezium's PostgreSQL connector: Kafka Connect takes the short one, too.
const (
	connectorClass = "io.debezium.connector.postgresql.PostgresConnector"
	connectorAlias = "PostgresConnector"
)

func connectionRules() []rule {
	rules := []rule{
		{
			key: "connector.class", verdicts: []Verdict{Same, Refused}, doc: "Debezium's PostgreSQL connector, also by its short name.",
			apply: func(_ *mapping, e entry) (Verdict, string) {
				if e.value == connectorClass || e.value == connectorAlias {
					return Same, "Debezium's PostgreSQL connector"
				}
				return Refused, fmt.Sprintf("%q is another connector; only %s can be imported", e.value, connectorClass)
			},
		},
		{key: "name", ours: "name", verdicts: []Verdict{Same, Part}, doc: "The connector's name, as far as a Kafka client's id takes it.", apply: applyName},
		{
			key: "topic.prefix", ours: "debezium.name", verdicts: []Verdict{Same, Refused}, doc: "It is in context headers and in the names of envelopes' schemas.",
			apply: applyPrefix,
			absent: func(m *mapping) (Verdict, string) {
				if m.has("database.server.name") {
					return Note, ""
				}
				return Refused, "needed: Debezium does not start without it"
			},
		},
		{key: "database.server.name", ours: "debezium.name", verdicts: []Verdict{Same, Refused}, doc: "The name of `topic.prefix` before Debezium 2.", apply: applyPrefix},

		parameter("database.hostname", "host", ""),
		parameter("database.port", "port", "5432"),
		parameter("database.user", "user", ""),
		{
			key: "database.password", ours: "source.dsn", verdicts: []Verdict{Same}, doc: "Kept; `${provider:…}` becomes `${NAME}`, which the relay takes from its environment.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				value, names := m.refs.placeholders(e.value, e.key)
				m.dsn["password"] = value
				if len(names) > 0 {
					return Same, "source.dsn" + setThem(names)
				}
				return Same, "source.dsn, as it is: keep the file to yourself, or move it to source.dsn_file"
			},
		},
		parameter("database.dbname", "dbname", ""),
	}
	rules = append(rules, encryptionRules()...)
	return append(rules, driverRules()...)
}

// encryptionRules are about how the connection to the database is encrypted.
func encryptionRules() []rule {
	return []rule{
		{
			key: "database.sslmode", ours: "source.dsn", verdicts: []Verdict{Same, Part, Refused},
			doc:    "The same, but for `prefer` (the default) and `allow` to another machine: these go on in plain text where anybody in between says so. They become `require`.",
			apply:  func(m *mapping, e entry) (Verdict, string) { return m.tlsMode(strings.ToLower(e.value)) },
			absent: func(m *mapping) (Verdict, string) { return m.tlsMode("prefer") },
		},
		parameter("database.sslrootcert", "sslrootcert", ""),
		{
			key: "database.sslcert", ours: "source.dsn", verdicts: []Verdict{Same, Refused}, doc: "The same.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				if !m.has("database.sslkey") {
					return Refused, "database.sslkey is needed too"
				}
				return parameter(e.key, "sslcert", "").apply(m, e)
			},
		},
		{
			key: "database.sslkey", ours: "source.dsn", verdicts: []Verdict{Same, Part, Refused}, doc: "The same; a key in DER form (`.pk8`) has to be converted to PEM.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				if !m.has("database.sslcert") {
					return Refused, "database.sslcert is needed too"
				}
				value, names := m.refs.placeholders(e.value, e.key)
				m.dsn["sslkey"] = value
				if ext := filepath.Ext(e.value); ext == ".pk8" || ext == ".der" {
					pem := strings.TrimSuffix(e.value, ext) + ".pem"
					m.dsn["sslkey"] = pem
					return Part, fmt.Sprintf("source.dsn, as %s, which you make: openssl pkcs8 -inform DER -in %s -nocrypt -out %s", pem, e.value, pem)
				}
				return Same, "source.dsn" + setThem(names)
			},
		},
		parameter("database.sslpassword", "sslpassword", ""),
		refuse("database.sslfactory", "A Java class that makes connections cannot be carried over; use `database.sslmode` and files."),
	}
}

// driverRules are about the sessions and the driver.
func driverRules() []rule {
	return []rule{
		note("database.tcpKeepAlive", "Always on."),
		note("database.query.timeout.ms", "Bounded here too, by `startup_timeout`."),
		note("connection.validation.timeout.ms", "Bounded here too, by `startup_timeout`."),
		{
			key: "database.initial.statements", verdicts: []Verdict{Refused}, doc: "Statements at the start of every session.",
			apply: func(*mapping, entry) (Verdict, string) {
				return Refused, "statements at the start of every session cannot be carried over; ALTER ROLE … SET does what SET would"
			},
		},
		{
			key: "driver.targetServerType", ours: "source.dsn", verdicts: []Verdict{Same, Refused}, doc: "`any`, `primary` (`master`): `target_session_attrs`.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				switch strings.ToLower(e.value) {
				case "any":
				case "primary", "master":
					m.dsn["target_session_attrs"] = "primary"
				default:
					return Refused, fmt.Sprintf("%q is not one of any, primary", e.value)
				}
				return Same, "source.dsn"
			},
		},
		note("driver.ApplicationName", "The relay has a name of its own."),
		note("driver.tcpKeepAlive", "Always on."),
		refuse("driver.*", "An option of the JDBC driver; there is none here."),
	}
}

// parameter is a rule for one parameter of the connection string.
func parameter(key, param, fallback string) rule {
	r := rule{
		key: key, ours: "source.dsn", verdicts: []Verdict{Same}, doc: "The same.",
		apply: func(m *mapping, e entry) (Verdict, string) {
			value, names := m.refs.placeholders(e.value, e.key)
			m.dsn[param] = value
			reference := len(names) == 1 && value == "${"+names[0]+"}"
			if n, err := strconv.ParseUint(value, 10, 16); param == "port" && !reference && (err != nil || n == 0) {
				return Refused, "not a port"
			}
			return Same, "source.dsn" + setThem(names)
		},
	}
	switch {
	case strings.HasPrefix(param, "ssl"):
		return r
	case fallback != "":
		r.absent = func(m *mapping) (Verdict, string) {
			m.dsn[param] = fallback
			return Same, fallback
		}
	default:
		r.absent = func(*mapping) (Verdict, string) { return Refused, "needed" }
	}
	r.verdicts = []Verdict{Same, Refused}
	return r
}

func applyName(m *mapping, e entry) (Verdict, string) {
	name := relayName(e.value)
	if m.out.Name = name; name != e.value {
		return Part, fmt.Sprintf("name: %s, of the characters that a Kafka client's id takes", name)
	}
	return Same, "name"
}

func applyPrefix(m *mapping, e entry) (Verdict, string) {
	if e.value == "" || e.value != relayName(e.value) {
		return Refused, "letters, digits, '.', '_' and '-' are allowed, by Debezium, too"
	}
	m.extras.Name = e.value
	return Same, "debezium.name"
}

// relayName returns what of a name is allowed as ours.
func relayName(name string) string {
	name = regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-")
	return name[:min(len(name), 249)]
}

// tlsMode sets how the connection is encrypted.
func (m *mapping) tlsMode(mode string) (Verdict, string) {
	switch mode {
	case "disable", "require", "verify-ca", "verify-full":
		m.dsn["sslmode"] = mode
		return Same, "source.dsn"
	case "prefer", "allow":
	default:
		return Refused, fmt.Sprintf("%q is not one of disable, allow, prefer, require, verify-ca, verify-full", mode)
	}
	host := m.dsn["host"]
	switch ip := net.ParseIP(host); {
	case host == "localhost", ip != nil && ip.IsLoopback():
		return Same, "source.dsn, where it is the default for this machine"
	}
	m.dsn["sslmode"] = "require"
	return Part, mode + " goes on in plain text where anybody in between says so; source.dsn has sslmode=require: write verify-full if you can, or disable if the server has no TLS"
}

// conninfo writes the connection string of the collected parameters.
func (m *mapping) conninfo() string {
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	var parts []string
	for _, name := range []string{
		"host", "port", "user", "password", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "target_session_attrs",
	} {
		value, ok := m.dsn[name]
		if !ok {
			continue
		}
		if !regexp.MustCompile(`^[A-Za-z0-9._/:,-]+$`).MatchString(value) {
			value = "'" + escape.Replace(value) + "'"
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}
