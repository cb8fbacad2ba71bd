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

// parseConninfo parses a connection string by libpq's rules and the TLS rule of [Config.Postgres]. The error contains
// nothing of dsn.
func parseConninfo(dsn string) (*pgx.ConnConfig, error) {
	pg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New(conninfoReason(err))
	}
	if isAmbiguous(dsn) {
		return nil, errors.New("ambiguous URL: write @ and / in the user or password as %40 and %2F")
	}
	return pg, requireTLS(&pg.Config, choosesTLS(dsn))
}

// conninfoReason returns why a connection string is invalid, in words that cannot be part of it: if the syntax is wrong,
// any word of it may belong to a password.
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
			return "invalid: " + known
		}
	}
	return "must be a URL (postgres://user@host:5432/database?sslmode=verify-full) or key=value pairs (host=… user=… dbname=…);" +
		" in a URL, write special characters of a password as %XX; in key=value pairs, put it in single quotes"
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// isAmbiguous reports whether dsn is a URL with an @ that may belong to a password. libpq ends the password at the
// first @, or sees none after a slash, and treats the rest as a host or database, which errors would show.
func isAmbiguous(dsn string) bool {
	_, rest, _ := strings.Cut(dsn, "://")
	at := strings.LastIndexByte(rest, '@')
	return isURL(dsn) && at >= 0 && strings.ContainsAny(rest[:at], "@/")
}

var (
	// keywordParam matches name=value. The value may be in single quotes, and a backslash escapes the next
	// character.
	keywordParam = regexp.MustCompile(`(?s)[^=\s\v]+[\s\v]*=[\s\v]*('(?:[^'\\]|\\.)*'|(?:[^\\\s\v]|\\.)*)`)
	urlPassword  = regexp.MustCompile(`^(\w+://[^:@/]*):[^@/]*@`)
)

// choosesTLS reports whether dsn or PGSSLMODE sets an sslmode that is not empty.
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

// harmlessParams are the parameters whose values are never secrets. Any other parameter may be a misspelt password,
// because libpq sends unknown parameters to Postgres as session settings.
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

// pathParams are the parameters whose values are paths.
var pathParams = []string{"passfile", "servicefile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"}

// isHarmless reports whether value, as written in the connection string, may be shown.
func isHarmless(name, value string) bool {
	if slices.Contains(pathParams, name) {
		if decoded, err := url.PathUnescape(value); err == nil {
			value = decoded
		}
		value = strings.Trim(strings.TrimSpace(value), "'")
		return value == "" || value == "system" || shownPath(value) == value // sslrootcert=system: the CA certificates of the system
	}
	return slices.Contains(harmlessParams, name)
}

// replaceSecrets returns dsn with text as the value of each parameter that may be a secret, or without these parameters
// if text is empty. dsn must be valid.
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
