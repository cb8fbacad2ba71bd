package debezium

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of Debezium's PostgreSQL connector. Kafka Connect also accepts the short one.
const (
	connectorClass = "io.debezium.connector.postgresql.PostgresConnector"
	connectorAlias = "PostgresConnector"
)

func connectionRules() []rule {
	rules := []rule{
		{
			key: "connector.class", verdicts: []verdict{same, rejected}, doc: "Debezium's PostgreSQL connector, also by its short name.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if text := anotherConnector(e.value); text != "" {
					return rejected, text
				}
				return same, "Debezium's PostgreSQL connector"
			},
		},
		{key: "name", ours: "name", verdicts: []verdict{same, partial}, doc: "The connector's name, in the characters that a Kafka client id allows.", apply: applyName},
		{
			key: "topic.prefix", ours: "debezium.name", verdicts: []verdict{same, rejected}, doc: "Used in context headers and in the schema names of envelopes.",
			apply: applyPrefix,
			absent: func(m *mapping) (verdict, string) {
				if m.has("database.server.name") {
					return noted, ""
				}
				return rejected, "required: Debezium does not start without it"
			},
		},
		{
			key: "database.server.name", ours: "debezium.name", verdicts: []verdict{same, noted, rejected}, doc: "The name of `topic.prefix` before Debezium 2, which ignores it.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if m.has("topic.prefix") {
					return noted, "Debezium 2 and later ignore it; topic.prefix counts"
				}
				return applyPrefix(m, e)
			},
		},

		parameter("database.hostname", "host", ""),
		parameter("database.port", "port", "5432"),
		parameter("database.user", "user", ""),
		{
			key: "database.password", ours: "source.dsn", verdicts: []verdict{same}, doc: "The same. `${provider:…}` becomes the environment variable `${NAME}`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				value, names := m.refs.placeholders(e.value, e.key)
				m.dsn["password"] = value
				if len(names) > 0 {
					return same, "source.dsn" + setThem(names)
				}
				return same, "source.dsn, as it is: let only the relay's user read the file, or move it to source.dsn_file"
			},
		},
		parameter("database.dbname", "dbname", ""),
	}
	rules = append(rules, encryptionRules()...)
	return append(rules, driverRules()...)
}

// anotherConnector returns why a class is not the connector that can be imported, or "".
func anotherConnector(class string) string {
	switch {
	case class == connectorClass || class == connectorAlias:
		return ""
	case strings.Contains(class, "Sink"):
		return fmt.Sprintf("%q is another connector: a sink, which reads topics; only %s can be imported", class, connectorClass)
	}
	return fmt.Sprintf("%q is another connector; only %s can be imported", class, connectorClass)
}

// encryptionRules returns the rules for TLS to the database.
func encryptionRules() []rule {
	return []rule{
		{
			key: "database.sslmode", ours: "source.dsn", verdicts: []verdict{same, partial, rejected},
			doc:    "The same. For another machine, `prefer` (the default) and `allow` become `require`, because an attacker could downgrade them to plain text, or with `--live` what the server takes.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.tlsMode(strings.ToLower(e.value)) },
			absent: func(m *mapping) (verdict, string) { return m.tlsMode("prefer") },
		},
		parameter("database.sslrootcert", "sslrootcert", ""),
		{
			key: "database.sslcert", ours: "source.dsn", verdicts: []verdict{same, rejected}, doc: "The same.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if !m.has("database.sslkey") {
					return rejected, "database.sslkey is required too"
				}
				return parameter(e.key, "sslcert", "").apply(m, e)
			},
		},
		{
			key: "database.sslkey", ours: "source.dsn", verdicts: []verdict{same, partial, rejected}, doc: "The same. Convert a DER key (`.pk8`) to PEM.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if !m.has("database.sslcert") {
					return rejected, "database.sslcert is required too"
				}
				value, names := m.refs.placeholders(e.value, e.key)
				m.dsn["sslkey"] = value
				if ext := filepath.Ext(e.value); ext == ".pk8" || ext == ".der" {
					pem := e.value + ".pem" // and not the name of the certificate
					m.dsn["sslkey"] = pem
					return partial, fmt.Sprintf("source.dsn, as %s, which you make: openssl pkcs8 -inform DER -in %s -nocrypt -out %s", pem, e.value, pem)
				}
				return same, "source.dsn" + setThem(names)
			},
		},
		parameter("database.sslpassword", "sslpassword", ""),
		refuse("database.sslfactory", "A Java class that creates connections is not supported. Use `database.sslmode` and files."),
	}
}

// driverRules returns the rules for database sessions and the driver.
func driverRules() []rule {
	return []rule{
		note("database.tcpKeepAlive", "Always on."),
		note("database.query.timeout.ms", "The relay uses `startup_timeout`."),
		note("connection.validation.timeout.ms", "The relay uses `startup_timeout`."),
		{
			key: "database.initial.statements", verdicts: []verdict{rejected}, doc: "Statements at the start of every session are not supported.",
			apply: func(*mapping, entry) (verdict, string) {
				return rejected, "statements at the start of every session are not supported; use ALTER ROLE … SET instead of SET"
			},
		},
		{
			key: "driver.targetServerType", ours: "source.dsn", verdicts: []verdict{same, rejected}, doc: "`any`, `primary` (`master`): `target_session_attrs`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch strings.ToLower(e.value) {
				case "any":
				case "primary", "master":
					m.dsn["target_session_attrs"] = "primary"
				default:
					return rejected, fmt.Sprintf("%q is not one of any, primary", e.value)
				}
				return same, "source.dsn"
			},
		},
		note("driver.ApplicationName", "The relay sets its own name."),
		note("driver.tcpKeepAlive", "Always on."),
		refuse("driver.*", "An option of the JDBC driver, which the relay does not have. Remove it if the connection works without it, or add the parameter of libpq to `source.dsn` and remove it."),
	}
}

// parameter returns a rule for a parameter of the connection string.
func parameter(key, param, fallback string) rule {
	r := rule{
		key: key, ours: "source.dsn", verdicts: []verdict{same}, doc: "The same.",
		apply: func(m *mapping, e entry) (verdict, string) {
			value, names := m.refs.placeholders(e.value, e.key)
			m.dsn[param] = value
			reference := len(names) == 1 && value == "${"+names[0]+"}"
			if n, err := strconv.ParseUint(value, 10, 16); param == "port" && !reference && (err != nil || n == 0) {
				return rejected, "not a port"
			}
			if param == "host" && compileOnce(`[/\s]|^[^:]+:[^:]*$`).MatchString(value) {
				return rejected, "not the name or address of a host; the port belongs in database.port"
			}
			return same, "source.dsn" + setThem(names)
		},
	}
	switch {
	case strings.HasPrefix(param, "ssl"):
		return r
	case fallback != "":
		r.absent = func(m *mapping) (verdict, string) {
			m.dsn[param] = fallback
			return same, fallback
		}
	default:
		r.absent = func(*mapping) (verdict, string) { return rejected, "required" }
	}
	r.verdicts = []verdict{same, rejected}
	return r
}

func applyName(m *mapping, e entry) (verdict, string) {
	name := relayName(e.value)
	if m.out.Name = name; name != e.value {
		return partial, fmt.Sprintf("name: %s, of the characters that a Kafka client's id takes", name)
	}
	return same, "name"
}

func applyPrefix(m *mapping, e entry) (verdict, string) {
	if e.value == "" || e.value != relayName(e.value) {
		return rejected, "letters, digits, '.', '_' and '-' are allowed, by Debezium, too"
	}
	m.extras.Name = e.value
	return same, "debezium.name"
}

// relayName returns name without the characters that a relay's name must not have.
func relayName(name string) string {
	name = compileOnce(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-")
	return name[:min(len(name), 249)]
}

// tlsMode sets sslmode of the connection.
func (m *mapping) tlsMode(mode string) (verdict, string) {
	switch mode {
	case "disable", "require", "verify-ca", "verify-full":
		m.dsn["sslmode"] = mode
		return same, "source.dsn"
	case "prefer", "allow":
	default:
		return rejected, fmt.Sprintf("%q is not one of disable, allow, prefer, require, verify-ca, verify-full", mode)
	}
	host := m.dsn["host"]
	switch ip := net.ParseIP(host); {
	case host == "localhost", ip != nil && ip.IsLoopback():
		return same, "source.dsn, where it is the default for this machine"
	}
	live := cmp.Or(m.opts.Live, &Live{})
	if live.plaintext {
		m.dsn["sslmode"] = "disable"
		return partial, mode + " becomes sslmode=disable in source.dsn, because this server has no TLS"
	}
	m.dsn["sslmode"] = "require"
	if live.encrypted {
		return partial, mode + " becomes sslmode=require in source.dsn, because this server has TLS; use verify-full if you can"
	}
	return partial, mode + " lets an attacker downgrade to plain text, so it becomes sslmode=require: if the server has no TLS, write sslmode=disable in the line source.dsn, or let --live find out; use verify-full if you can"
}

// conninfo returns the connection string for the collected parameters.
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
		if !compileOnce(`^[A-Za-z0-9._/:,-]+$`).MatchString(value) {
			value = "'" + escape.Replace(value) + "'"
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}
