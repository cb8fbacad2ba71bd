package kafkatest

import (
	"crypto/tls"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// certificates are a certificate authority and the server and client certificates that it signed.
type certificates struct {
	authority    *certtest.Authority
	server, user certtest.Certificate
}

func newCertificates() *certificates {
	authority, until := certtest.New(), time.Now().Add(23*time.Hour)
	return &certificates{
		authority: authority,
		server:    authority.Issue(until, "127.0.0.1", "localhost"),
		user:      authority.Issue(until, "kafkatest"),
	}
}

// properties returns the broker's TLS properties, with PEM stores inside the
// properties file (KIP-651). A client certificate is optional.
func (c *certificates) properties() map[string]string {
	return map[string]string{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.certificate.chain": string(c.server.Cert),
		"ssl.keystore.key":               string(c.server.Key),
		"ssl.truststore.type":            "PEM",
		"ssl.truststore.certificates":    string(c.authority.PEM()),
		"ssl.client.auth":                "requested",
	}
}

func (c *certificates) client() *tls.Config {
	return &tls.Config{
		RootCAs: c.authority.Pool(), Certificates: []tls.Certificate{c.user.TLS}, MinVersion: tls.VersionTLS12,
	}
}
