package config

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

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
// or the service file contains an sslmode, which is then obeyed as libpq does. But prefer and
// allow go on in plain text where the server says so, or somebody in between: in the connection
// string and PGSSLMODE they are errors, in the service file they are verify-full.
// For loopback addresses and Unix sockets libpq's own default (prefer) stands.
//
// User, password, client certificate and trusted authorities are read again for each connection,
// from where they come from. What that finds wrong is the error of the connection.
func (c *Config) Postgres() (*pgx.ConnConfig, error) {
	if !c.namesSource() {
		return nil, missing("source.dsn")
	}
	pg, err := parseConninfo(string(c.Source.DSN))
	if err != nil {
		return nil, c.invalid("source.dsn", "%v", err)
	}
	pg.ConnectTimeout = cmp.Or(pg.ConnectTimeout, connectTimeout)
	c.rereadSource(&pg.Config)
	return pg, nil
}

// Libpq returns how Postgres' own programs reach the source that [Config.Postgres] describes: a
// connection string, which other users of the machine may see, and variables to add to their environment,
// which they may not. Of the string only what is known to be harmless is left; sslpassword has no variable, so a key
// that needs one cannot be used.
//
// The variables: https://www.postgresql.org/docs/current/libpq-envars.html
func (c *Config) Libpq() (conninfo string, environ []string, err error) {
	pg, err := c.Postgres()
	if err != nil {
		return "", nil, err
	}
	if pg.Password != "" {
		environ = append(environ, "PGPASSWORD="+pg.Password)
	}
	if options := pg.RuntimeParams["options"]; options != "" {
		environ = append(environ, "PGOPTIONS="+options)
	}
	// What the connection string or the service file says goes before the environment.
	if t := pg.TLSConfig; t != nil && !isUnverified(t) && os.Getenv("PGSSLMODE") == "" {
		environ = append(environ, "PGSSLMODE=verify-full")
		if t.RootCAs == nil && !t.InsecureSkipVerify {
			environ = append(environ, "PGSSLROOTCERT=system") // libpq's default is a file that is not there
		}
	}
	return replaceSecrets(string(c.Source.DSN), ""), environ, nil
}

// namesSource reports whether anything says which database is meant.
func (c *Config) namesSource() bool {
	return c.Source.DSN != "" || cmp.Or(os.Getenv("PGHOST"), os.Getenv("PGSERVICE"), os.Getenv("PGDATABASE")) != ""
}

// rereadSource makes pg read again, for each connection, what may be replaced while the process
// runs: user and password, the client's certificate, and the authorities that are trusted. They
// are where the connection string, its file, the password file or the service file says. Which
// server and database is meant stays as it was: a position is one of a server's.
func (c *Config) rereadSource(pg *pgconn.Config) {
	now := func() (*pgconn.Config, error) {
		dsn, err := c.currentSecret("source.dsn")
		if err != nil {
			return nil, err
		}
		fresh, err := parseConninfo(dsn)
		if err != nil {
			return nil, fmt.Errorf("source.dsn: %w", err)
		}
		if !samePlace(pg, &fresh.Config) {
			return nil, errors.New("source.dsn names another server or database than at the start, or another way to encrypt: restart to go there")
		}
		return &fresh.Config, nil
	}
	pg.AfterNetConnect = func(_ context.Context, connection *pgconn.Config, conn net.Conn) (net.Conn, error) {
		fresh, err := now()
		if err == nil {
			connection.User, connection.Password = fresh.User, fresh.Password
		}
		return conn, err
	}
	for i, a := range attempts(pg) {
		if a.TLSConfig != nil {
			rereadTLS(a.TLSConfig, func() (*tls.Config, error) {
				fresh, err := now()
				if err != nil {
					return nil, err
				}
				return attempts(fresh)[i].TLSConfig, nil
			})
		}
	}
}

// samePlace reports whether a and b lead to the same database, by the same attempts.
func samePlace(a, b *pgconn.Config) bool {
	as, bs := attempts(a), attempts(b)
	if len(as) != len(bs) || a.Database != b.Database {
		return false
	}
	for i := range as {
		if as[i].Host != bs[i].Host || as[i].Port != bs[i].Port || (as[i].TLSConfig == nil) != (bs[i].TLSConfig == nil) {
			return false
		}
	}
	return true
}

// requireTLS makes verify-full of prefer, which is libpq's default, for all hosts but this
// machine: it removes the attempts in plain text and verifies the others. If the user has chosen
// an sslmode that allows plain text after TLS or before it, that is an error.
func requireTLS(pg *pgconn.Config, chosen bool) error {
	all := attempts(pg)
	encrypted := make(map[string]bool)
	for _, a := range all {
		encrypted[a.Host] = encrypted[a.Host] || a.TLSConfig != nil
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(a *pgconn.FallbackConfig) bool {
		return a.TLSConfig == nil && encrypted[a.Host] && !isThisMachine(a.Host)
	})
	switch {
	case chosen && len(kept) < len(all):
		return errors.New("sslmode prefer and allow go on in plain text where the server says so, or anybody in between:" +
			" write verify-full, require to encrypt without verifying, or disable")
	case len(kept) == len(all) && (chosen || pg.SSLNegotiation != "direct"): // pgconn makes require of direct
		return nil
	}
	for _, a := range kept {
		if a.TLSConfig != nil && !isThisMachine(a.Host) && isUnverified(a.TLSConfig) {
			a.TLSConfig = a.TLSConfig.Clone()
			a.TLSConfig.InsecureSkipVerify = false
			a.TLSConfig.ServerName = a.Host
		}
	}
	pg.Host, pg.Port, pg.TLSConfig, pg.Fallbacks = kept[0].Host, kept[0].Port, kept[0].TLSConfig, kept[1:]
	return nil
}

// attempts returns what a connection tries, one after the other.
func attempts(pg *pgconn.Config) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: pg.Host, Port: pg.Port, TLSConfig: pg.TLSConfig}}, pg.Fallbacks...)
}

// isThisMachine reports whether host is loopback or the directory of a Unix socket.
func isThisMachine(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || filepath.IsAbs(host)
}
