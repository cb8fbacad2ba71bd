package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// rereadSource makes pg read again, for each connection, what may be replaced while the process
// runs: user and password, the client's certificate, and the authorities that are trusted. They
// are where the connection string, its file, the password file or the service file says. Which
// server and database is meant stays as it was: a position is one of a server's.
func (c *Config) rereadSource(pg *pgconn.Config) {
	now := func() (*pgconn.Config, error) {
		c := c.now()
		dsn, err := c.readSecret("source.dsn", c.Source.DSN)
		if err != nil {
			return nil, later(err)
		}
		fresh, err := parseConninfo(string(dsn))
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

// rereadTLS has cfg take certificate and authorities from now at each handshake, where it has
// any of its own.
func rereadTLS(cfg *tls.Config, now func() (*tls.Config, error)) {
	if len(cfg.Certificates) > 0 {
		cfg.GetClientCertificate = func(wanted *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			fresh, err := now()
			if err != nil {
				return nil, err
			}
			for i := range fresh.Certificates {
				if wanted.SupportsCertificate(&fresh.Certificates[i]) == nil {
					return &fresh.Certificates[i], nil
				}
			}
			return new(tls.Certificate), nil // as crypto/tls does: the server says what it thinks of none
		}
	}
	anyName := cfg.VerifyPeerCertificate != nil // verify-ca
	if cfg.RootCAs == nil || cfg.InsecureSkipVerify && !anyName {
		return
	}
	name := cfg.ServerName
	if anyName {
		name = ""
	}
	cfg.InsecureSkipVerify = true // what follows verifies
	cfg.VerifyPeerCertificate = nil
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		fresh, err := now()
		if err != nil {
			return err
		}
		return verify(state.PeerCertificates, fresh.RootCAs, name)
	}
}

// verify does what crypto/tls does without InsecureSkipVerify. An empty name is any. The name
// is not the connection state's: that has none where a host is an IP address.
func verify(chain []*x509.Certificate, roots *x509.CertPool, name string) error {
	if roots == nil {
		return errors.New("sslrootcert is gone")
	}
	options := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}
