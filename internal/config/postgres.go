package config

import (
	"cmp"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgservicefile"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectTimeout is libpq's connect_timeout where none is given. libpq's own default, to wait for ever,
// makes an outage of a network outlast itself.
const connectTimeout = 10 * time.Second

// Postgres returns how to reach the source. An empty source.dsn is allowed where PG*
// variables say at least which host, service or database is meant.
//
// A host that is not this machine is reached over TLS with its certificate and name
// verified (libpq's verify-full), never in plain text, unless the connection string, PGSSLMODE
// or the service file contains an sslmode, which is then obeyed as libpq does; but prefer and
// allow, which go on in plain text where the server says so, or somebody in between, are errors.
// For loopback addresses and Unix sockets libpq's own default (prefer) stands.
//
// User, password, client certificate and trusted authorities are read again for each connection,
// from where they come from. What that finds wrong is the error of the connection.
func (c *Config) Postgres() (*pgx.ConnConfig, error) {
	if !c.namesSource() {
		return nil, c.missing("source.dsn")
	}
	pg, err := parseConninfo(string(c.Source.DSN))
	if err != nil {
		return nil, c.invalid("source.dsn", "%v", err)
	}
	pg.ConnectTimeout = cmp.Or(pg.ConnectTimeout, connectTimeout)
	c.rereadSource(&pg.Config)
	return pg, nil
}

// namesSource reports whether anything says which database is meant.
func (c *Config) namesSource() bool {
	return c.Source.DSN != "" || slices.ContainsFunc([]string{"PGHOST", "PGSERVICE", "PGDATABASE"}, envSet)
}

func envSet(name string) bool { return os.Getenv(name) != "" }

// parseConninfo parses a connection string with libpq's rules and the TLS rule of
// [Config.Postgres]. Its error shows nothing of dsn.
func parseConninfo(dsn string) (*pgx.ConnConfig, error) {
	pg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New(conninfoReason(err))
	}
	if _, ok := conninfoParams(dsn); !ok {
		return nil, errors.New("its parts cannot be told apart: in a URL, an @ or / in user or password is written %40 or %2F")
	}
	if !choosesTLS(dsn) {
		verifyRemote(&pg.Config)
	}
	if fallsBack(attempts(&pg.Config)) {
		return nil, errors.New("sslmode prefer and allow go on in plain text where the server says so, or anybody in between:" +
			" write verify-full, require to encrypt without verifying, or disable")
	}
	return pg, nil
}

// conninfoReason says why a connection string was refused, in words that cannot be part of it: where
// its syntax is broken, any word of it may belong to a password.
func conninfoReason(err error) string {
	text := err.Error()
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return text[strings.LastIndexByte(text, '`')+len("`: "):]
	}
	for _, known := range []string{
		"invalid port", "could not match", "sslmode is invalid", "sslcertmode", "connect_timeout",
		"unable to add CA", "failed to decode sslkey", "unable to decrypt key", "unable to find sslpassword", "unable to load cert",
		`both "sslcert" and "sslkey" are required`, "failed to read service file", "unable to find service",
		"target_session_attrs", "min_protocol_version", "max_protocol_version", "channel_binding", "require_auth",
	} {
		if strings.Contains(text, known) {
			return "not accepted: " + known
		}
	}
	return "neither a URL (postgres://user@host:5432/database?sslmode=verify-full) nor keywords and values (host=… user=… dbname=…);" +
		" in a URL, special characters of a password are written %XX, among keywords it stands in single quotes"
}

// choosesTLS reports whether the user has said how connections are encrypted. As with
// libpq, the connection string goes before the service file and that before PGSSLMODE; an empty
// sslmode says nothing.
func choosesTLS(dsn string) bool {
	said := make(map[string]string)
	params, _ := conninfoParams(dsn)
	for _, p := range params {
		said[p.name] = dsn[p.from:p.to]
	}
	if mode, ok := said["sslmode"]; ok {
		return mode != ""
	}
	if said["ssl"] == "true" && isURL(dsn) { // the URL's way to say sslmode=require
		return true
	}
	if mode, ok := serviceSettings(said["service"], said["servicefile"])["sslmode"]; ok {
		return mode != ""
	}
	return envSet("PGSSLMODE")
}

// serviceSettings returns what the service file says: of name and file where the connection
// string has them, else of the environment's.
func serviceSettings(name, file string) map[string]string {
	name = cmp.Or(name, os.Getenv("PGSERVICE"))
	file = cmp.Or(file, os.Getenv("PGSERVICEFILE"))
	if name == "" {
		return nil
	}
	if home, err := os.UserHomeDir(); err == nil && file == "" {
		file = filepath.Join(home, ".pg_service.conf")
	}
	services, err := pgservicefile.ReadServicefile(file)
	if err != nil {
		return nil
	}
	service, err := services.GetService(name)
	if err != nil {
		return nil
	}
	return service.Settings
}

// verifyRemote makes verify-full of the prefer that pg was parsed with, for all hosts but
// this machine: attempts without TLS go, those with TLS verify.
func verifyRemote(pg *pgconn.Config) {
	attempts := slices.DeleteFunc(attempts(pg), func(a *pgconn.FallbackConfig) bool {
		return a.TLSConfig == nil && !isThisMachine(a.Host)
	})
	for _, a := range attempts {
		if a.TLSConfig != nil && !isThisMachine(a.Host) {
			a.TLSConfig = a.TLSConfig.Clone()
			a.TLSConfig.InsecureSkipVerify = false
			a.TLSConfig.ServerName = a.Host
		}
	}
	pg.Host, pg.Port, pg.TLSConfig, pg.Fallbacks = attempts[0].Host, attempts[0].Port, attempts[0].TLSConfig, attempts[1:]
}

// attempts returns what a connection tries, one after the other.
func attempts(pg *pgconn.Config) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: pg.Host, Port: pg.Port, TLSConfig: pg.TLSConfig}}, pg.Fallbacks...)
}

// fallsBack reports whether another machine is tried both with TLS and without.
func fallsBack(attempts []*pgconn.FallbackConfig) bool {
	with, without := make(map[string]bool), make(map[string]bool)
	for _, a := range attempts {
		if a.TLSConfig != nil {
			with[a.Host] = true
		} else {
			without[a.Host] = true
		}
	}
	for host := range with {
		if without[host] && !isThisMachine(host) {
			return true
		}
	}
	return false
}

// isThisMachine reports whether host is loopback or the directory of a Unix socket.
func isThisMachine(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || filepath.IsAbs(host)
}
