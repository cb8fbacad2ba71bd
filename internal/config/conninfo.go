package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// parseConninfo parses a connection string by libpq's rules and the TLS rule of [Config.Postgres]. notes are the words of
// it that have no effect. The error contains no value of dsn.
func parseConninfo(dsn string) (pg *pgx.ConnConfig, notes []string, err error) {
	pg, err = pgx.ParseConfig(dsn)
	if err != nil {
		return nil, nil, errors.New(conninfoReason(err))
	}
	if isAmbiguous(dsn) {
		return nil, nil, errors.New("ambiguous URL: write @ and / in the user or password as %40 and %2F")
	}
	if pg, err = useAddresses(pg, dsn); err != nil {
		return nil, nil, err
	}
	if notes, err = obeyWords(pg, dsn); err != nil {
		return nil, nil, err
	}
	return pg, notes, requireTLS(&pg.Config, choosesTLS(dsn))
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
	if strings.Contains(err.Error(), "unable to add CA") {
		return "the file of sslrootcert contains no certificate in PEM form; openssl x509 -inform DER converts one in DER form"
	}
	for _, known := range []string{
		"invalid port", "could not match", "sslmode is invalid", "sslcertmode", "connect_timeout",
		"failed to decode sslkey", "unable to decrypt key", "unable to find sslpassword", "unable to load cert",
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

// params returns the parameters of dsn as name=value, as written there, without the parts of a URL before the question mark.
func params(dsn string) []string {
	if isURL(dsn) {
		_, query, _ := strings.Cut(dsn, "?")
		return strings.Split(query, "&")
	}
	return keywordParam.FindAllString(dsn, -1)
}

// paramName returns the name of a parameter of params.
func paramName(param string) string {
	name, _, _ := strings.Cut(param, "=")
	if decoded, err := url.PathUnescape(name); err == nil {
		name = decoded
	}
	return strings.TrimSpace(name)
}

// paramNames returns the names of params, in order.
func paramNames(dsn string) (names []string) {
	for _, param := range params(dsn) {
		names = append(names, paramName(param))
	}
	return names
}

// withHost returns dsn with host as its host, which may be several with commas.
func withHost(dsn, host string) string {
	switch {
	case !isURL(dsn):
		return dsn + " host='" + host + "'"
	case strings.Contains(dsn, "?"):
		return dsn + "&host=" + url.QueryEscape(host)
	}
	return dsn + "?host=" + url.QueryEscape(host)
}

// choosesTLS reports whether dsn or PGSSLMODE sets an sslmode that is not empty.
func choosesTLS(dsn string) bool {
	mode := os.Getenv("PGSSLMODE")
	for _, param := range params(dsn) {
		if name, value, _ := strings.Cut(param, "="); strings.TrimSpace(name) == "sslmode" {
			mode = strings.Trim(value, " '")
		}
	}
	return mode != ""
}

// maskConninfo returns dsn with a mask in place of every value that may be a secret, or only the mask if
// dsn cannot be parsed.
func maskConninfo(dsn string) string {
	if _, _, err := parseConninfo(dsn); err != nil {
		return mask
	}
	return replaceSecrets(dsn, mask)
}

// isHarmless reports whether value, as written in the connection string, may be shown.
func isHarmless(name, value string) bool {
	w, known := wordNamed(name)
	switch {
	case !known:
		return replication.Sets(name)
	case w.value == aPath:
		if decoded, err := url.PathUnescape(value); err == nil {
			value = decoded
		}
		value = strings.Trim(strings.TrimSpace(value), "'")
		return value == "" || value == "system" || shownPath(value) == value // sslrootcert=system: the CA certificates of the system
	}
	return w.value == harmless
}

// replaceSecrets returns dsn with text as the value of each parameter that may be a secret, or without these parameters
// if text is empty. dsn must be valid.
func replaceSecrets(dsn, text string) string {
	replace := func(param string) string {
		_, value, _ := strings.Cut(param, "=")
		name := paramName(param)
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
	before, _, _ := strings.Cut(urlPassword.ReplaceAllString(dsn, user), "?")
	var kept []string
	for _, param := range params(dsn) {
		if param = replace(param); param != "" {
			kept = append(kept, param)
		}
	}
	return strings.TrimSuffix(before+"?"+strings.Join(kept, "&"), "?")
}
