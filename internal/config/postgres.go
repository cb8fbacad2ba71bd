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

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// connectTimeout is the default of connect_timeout. With libpq's default, no timeout, a connection attempt could hang
// after a network outage is over.
const connectTimeout = 10 * time.Second

// Postgres returns the connection settings of the source. source.dsn may be empty if PG* variables name a host, service
// or database.
//
// A connection to another machine uses TLS and verifies certificate and host name (libpq's verify-full), unless the
// connection string, PGSSLMODE or the service file sets an sslmode. The modes prefer and allow are not secure, because
// the server, or an attacker in its place, can turn TLS off. In the connection string and PGSSLMODE they are errors; in
// the service file they mean verify-full. For loopback addresses and Unix sockets the default is libpq's, prefer.
//
// User, password, client certificate and CA certificates are read again for each connection. If that fails, the
// connection fails. A password that expires is obtained for each connection too, after the TLS handshake; if that fails,
// the error is a [*replication.CredentialsError].
func (c *Config) Postgres() (*pgx.ConnConfig, error) {
	pg, _, err := c.source()
	return pg, err
}

// source is Postgres. It also returns the words of source.dsn that have no effect, one sentence each.
func (c *Config) source() (pg *pgx.ConnConfig, notes []string, err error) {
	if !c.namesSource() {
		return nil, nil, missing("source.dsn")
	}
	pg, notes, err = parseConninfo(string(c.Source.DSN))
	if err != nil {
		return nil, nil, c.invalid("source.dsn", "%v", err)
	}
	if err := c.checkIAM(&pg.Config); err != nil {
		return nil, nil, err
	}
	pg.ConnectTimeout = cmp.Or(pg.ConnectTimeout, connectTimeout)
	preferPrimary(&pg.Config, string(c.Source.DSN))
	c.rereadSource(&pg.Config)
	pg.Config = *replication.Ordinary(&pg.Config)
	return pg, notes, nil
}

// Libpq returns the connection settings of [Config.Postgres] for Postgres' own programs: a connection string, which
// other users of the machine may see, and secret environment variables. The string has only parameters that are known to
// be harmless. A password that expires is obtained once. sslpassword has no variable, so an encrypted key cannot be used.
//
// The variables: https://www.postgresql.org/docs/current/libpq-envars.html
func (c *Config) Libpq(ctx context.Context) (conninfo string, environ []string, err error) {
	pg, err := c.Postgres()
	if err != nil {
		return "", nil, err
	}
	if password := c.expiringPassword(&pg.Config); password != nil {
		if pg.Password, err = password(ctx, pg.User); err != nil {
			return "", nil, err
		}
	}
	if pg.Password != "" {
		environ = append(environ, "PGPASSWORD="+pg.Password)
	}
	if options := pg.RuntimeParams["options"]; options != "" {
		environ = append(environ, "PGOPTIONS="+options)
	}
	// The connection string and the service file override the environment.
	if t := pg.TLSConfig; t != nil && !isUnverified(t) && os.Getenv("PGSSLMODE") == "" {
		environ = append(environ, "PGSSLMODE=verify-full")
		if t.RootCAs == nil && !t.InsecureSkipVerify {
			environ = append(environ, "PGSSLROOTCERT=system") // the file of libpq's default need not exist
		}
	}
	return replaceSecrets(string(c.Source.DSN), ""), environ, nil
}

// namesSource reports whether source.dsn or a PG* variable names a database.
func (c *Config) namesSource() bool {
	return c.Source.DSN != "" || cmp.Or(os.Getenv("PGHOST"), os.Getenv("PGSERVICE"), os.Getenv("PGDATABASE")) != ""
}

// rereadSource makes pg read user, password, client certificate and CA certificates again for each connection, from the
// connection string, its file, the password file or the service file. Server and database must not change, because
// positions belong to one server.
func (c *Config) rereadSource(pg *pgconn.Config) {
	now := func() (*pgconn.Config, error) {
		dsn, err := c.currentSecret("source.dsn")
		if err != nil {
			return nil, err
		}
		fresh, _, err := parseConninfo(dsn)
		if err != nil {
			return nil, fmt.Errorf("source.dsn: %w", err)
		}
		if !samePlace(pg, &fresh.Config) {
			return nil, errors.New("source.dsn names another server, database or TLS mode than at the start: restart the relay to use it")
		}
		return &fresh.Config, nil
	}
	password := c.expiringPassword(pg)
	pg.AfterNetConnect = func(ctx context.Context, connection *pgconn.Config, conn net.Conn) (net.Conn, error) {
		fresh, err := now()
		if err != nil {
			return conn, err
		}
		connection.User, connection.Password = fresh.User, fresh.Password
		if password != nil {
			connection.Password, err = password(ctx, fresh.User)
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

// samePlace reports whether a and b lead to the same database with the same attempts.
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

// requireTLS replaces prefer, libpq's default, with verify-full for all hosts except this machine: it removes attempts
// without TLS and makes the others verify. It returns an error if the user has set prefer or allow.
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
		return errors.New("sslmode prefer and allow are not secure, because the server or an attacker can turn TLS off:" +
			" use verify-full, require (TLS without verification) or disable")
	case len(kept) == len(all) && (chosen || pg.SSLNegotiation != "direct"): // for direct, pgconn uses require
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

// attempts returns the attempts of a connection, in order.
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
