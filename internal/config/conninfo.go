package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// parseConninfo parses a connection string with libpq's rules and the TLS rule of
// [Config.Postgres]. Its error shows nothing of dsn.
func parseConninfo(dsn string) (*pgx.ConnConfig, error) {
	pg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New(conninfoReason(err))
	}
	if isAmbiguous(dsn) {
		return nil, errors.New("its parts cannot be told apart: in a URL, an @ or / in user or password is written %40 or %2F")
	}
	return pg, requireTLS(&pg.Config, choosesTLS(dsn))
}

// conninfoReason says why a connection string was refused, in words that cannot be part of it: where
// its syntax is broken, any word of it may belong to a password.
func conninfoReason(err error) string {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		for _, name := range []string{"sslkey", "service file", "CA file", "cert"} {
			if strings.Contains(err.Error(), "read "+name) {
				return name + ": " + fileReason(err)
			}
		}
		return fileReason(err)
	}
	for _, known := range []string{
		"invalid port", "could not match", "sslmode is invalid", "sslcertmode", "connect_timeout",
		"unable to add CA", "failed to decode sslkey", "unable to decrypt key", "unable to find sslpassword", "unable to load cert",
		`both "sslcert" and "sslkey" are required`, "failed to read service file", "unable to find service",
		"target_session_attrs", "min_protocol_version", "max_protocol_version", "channel_binding", "require_auth",
	} {
		if strings.Contains(err.Error(), known) {
			return "not accepted: " + known
		}
	}
	return "neither a URL (postgres://user@host:5432/database?sslmode=verify-full) nor keywords and values (host=… user=… dbname=…);" +
		" in a URL, special characters of a password are written %XX, among keywords it stands in single quotes"
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// isAmbiguous reports whether dsn is a URL with an @ that may belong to a password: libpq ends
// the password at the first one, or has none after a slash, and takes the rest for a host or
// database, whose name is no secret.
func isAmbiguous(dsn string) bool {
	_, rest, _ := strings.Cut(dsn, "://")
	at := strings.LastIndexByte(rest, '@')
	return isURL(dsn) && at >= 0 && strings.ContainsAny(rest[:at], "@/")
}

var (
	// keywordParam matches name=value, where the value may stand in single quotes and a backslash
	// escapes the character after it.
	keywordParam = regexp.MustCompile(`(?s)[^=\s\v]+[\s\v]*=[\s\v]*('(?:[^'\\]|\\.)*'|(?:[^\\\s\v]|\\.)*)`)
	urlPassword  = regexp.MustCompile(`^(\w+://[^:@/]*):[^@/]*@`)
)

// choosesTLS reports whether dsn or PGSSLMODE contains an sslmode. An empty one counts as none.
func choosesTLS(dsn string) bool {
	params := keywordParam.FindAllString(dsn, -1)
	if isURL(dsn) {
		_, query, _ := strings.Cut(dsn, "?")
		params = strings.Split(query, "&")
	}
	mode := os.Getenv("PGSSLMODE")
	for _, param := range params {
		if name, value, _ := strings.Cut(param, "="); strings.TrimSpace(name) == "sslmode" {
			mode = strings.Trim(value, " '")
		}
	}
	return mode != ""
}

// maskConninfo returns dsn with a mask in place of every value that may be a secret, or only the mask if
// dsn cannot be parsed.
func maskConninfo(dsn string) string {
	if _, err := parseConninfo(dsn); err != nil {
		return mask
	}
	return replaceSecrets(dsn, mask)
}

// harmlessParams are the parameters whose values are never secrets. Any other may be a password with its name
// misspelt, which Postgres takes for a setting of the session.
// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
var harmlessParams = []string{
	"host", "hostaddr", "port", "dbname", "database", "user", "service", "application_name", "fallback_application_name", "client_encoding", "replication",
	"connect_timeout", "tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
	"target_session_attrs", "load_balance_hosts", "channel_binding", "require_auth", "min_protocol_version", "max_protocol_version",
	"sslmode", "sslnegotiation", "sslcertmode", "sslsni", "sslcompression", "requiressl", "ssl_min_protocol_version", "ssl_max_protocol_version",
	"gssencmode", "gssdelegation", "gsslib", "krbsrvname", "krbspn",
	"search_path", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "timezone", "datestyle",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
}

// pathParams are those whose values are paths.
var pathParams = []string{"passfile", "servicefile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"}

// isHarmless reports whether the parameter name may be shown with value, which stands as in the connection string.
func isHarmless(name, value string) bool {
	if slices.Contains(pathParams, name) {
		if decoded, err := url.PathUnescape(value); err == nil {
			value = decoded
		}
		value = strings.Trim(strings.TrimSpace(value), "'")
		return value == "" || value == "system" || shownPath(value) == value // sslrootcert=system are the system's authorities
	}
	return slices.Contains(harmlessParams, name)
}

// replaceSecrets returns dsn, which can be parsed, with text as the value of each parameter that may be a
// secret. If text is empty, it removes them.
func replaceSecrets(dsn, text string) string {
	replace := func(param string) string {
		name, value, _ := strings.Cut(param, "=")
		if decoded, err := url.PathUnescape(name); err == nil {
			name = strings.TrimSpace(decoded)
		}
		switch {
		case param == "" || isHarmless(name, value):
			return param
		case text == "":
			return ""
		}
		return name + "=" + text
	}
	if !isURL(dsn) {
		return keywordParam.ReplaceAllStringFunc(dsn, replace)
	}
	user := "$1@"
	if text != "" {
		user = "$1:" + text + "@"
	}
	before, query, _ := strings.Cut(urlPassword.ReplaceAllString(dsn, user), "?")
	params := strings.Split(query, "&")
	for i := range params {
		params[i] = replace(params[i])
	}
	params = slices.DeleteFunc(params, func(param string) bool { return param == "" })
	return strings.TrimSuffix(before+"?"+strings.Join(params, "&"), "?")
}
