package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// Kafka returns how the sink is reached and written to, or an [*Error] with what is missing.
func (c *Config) Kafka() (kafka.Config, error) {
	if len(c.Sink.Kafka.Brokers) == 0 {
		return kafka.Config{}, c.missing("sink.kafka.brokers")
	}
	return c.kafka()
}

// Libpq returns how Postgres' own programs reach the source that [Config.Postgres] describes: a
// connection string, which other users of the machine may see, and variables to add to their environment,
// which they may not. sslpassword has no variable, so a key that needs one cannot be used.
//
// The variables: https://www.postgresql.org/docs/current/libpq-envars.html
func (c *Config) Libpq() (conninfo string, environ []string, err error) {
	pg, err := c.Postgres()
	if err != nil {
		return "", nil, err
	}
	dsn := string(c.Source.DSN)
	set := make(map[string]string)
	params, _ := conninfoParams(dsn)
	for _, p := range params {
		if name := libpqVariable(p.name); name != "" {
			set[name] = paramValue(dsn, p)
		}
	}
	if pg.TLSConfig != nil && !choosesTLS(dsn) && !isThisMachine(pg.Host) {
		set["PGSSLMODE"] = "verify-full"
		if set["PGSSLROOTCERT"] == "" && !envSet("PGSSLROOTCERT") {
			set["PGSSLROOTCERT"] = "system" // libpq's default is a file that is not there
		}
	}
	hosts, ports := []string{pg.Host}, []string{strconv.Itoa(int(pg.Port))}
	for _, f := range pg.Fallbacks { // a host is there twice, with TLS and without
		if port := strconv.Itoa(int(f.Port)); f.Host != hosts[len(hosts)-1] || port != ports[len(ports)-1] {
			hosts, ports = append(hosts, f.Host), append(ports, port)
		}
	}
	set["PGHOST"], set["PGPORT"] = strings.Join(hosts, ","), strings.Join(ports, ",")
	set["PGUSER"], set["PGPASSWORD"] = pg.User, pg.Password
	for name, value := range set {
		if value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	slices.Sort(environ)
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	return "dbname='" + escape.Replace(pg.Database) + "'", environ, nil
}

// libpqVariable returns the environment variable of those parameters that say how to connect, and
// not where or as whom; empty for the others.
func libpqVariable(param string) string {
	switch {
	case param == "connect_timeout":
		return "PGCONNECT_TIMEOUT"
	case param == "sslpassword":
		return ""
	case strings.HasPrefix(param, "ssl"), strings.HasPrefix(param, "gss"),
		slices.Contains([]string{"channel_binding", "krbsrvname", "options", "require_auth", "target_session_attrs"}, param):
		return "PG" + strings.ToUpper(strings.ReplaceAll(param, "_", ""))
	}
	return ""
}

// paramValue returns what p means, without the escapes of dsn's form.
func paramValue(dsn string, p param) string {
	text := dsn[p.from:p.to]
	if isURL(dsn) {
		if value, err := url.PathUnescape(text); err == nil {
			return value
		}
		return text
	}
	var value strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		value.WriteByte(text[i])
	}
	return value.String()
}
