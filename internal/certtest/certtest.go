// Package certtest makes certificates for tests: of an authority that a test trusts or does
// not, for any name, valid or expired, for servers and clients alike.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Certificate is one with its key, ready for use and as PEM.
type Certificate struct {
	TLS       tls.Certificate
	Cert, Key []byte
}

// New returns an authority that nobody trusts yet.
func New(tb testing.TB) *Authority {
	tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "certtest"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, key := sign(tb, template, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &Authority{cert: cert, key: key}
}

// Pool returns what trusts a.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns a's own certificate.
func (a *Authority) PEM() []byte { return block("CERTIFICATE", a.cert.Raw) }

// Issue returns a certificate for name, a host name, an IP address or a user, that is valid from
// an hour before until.
func (a *Authority) Issue(tb testing.TB, name string, until time.Time) Certificate {
	tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, key := sign(tb, template, a)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return Certificate{
		TLS:  tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Cert: block("CERTIFICATE", der), Key: block("PRIVATE KEY", pkcs8),
	}
}

// sign makes a key and a certificate of it, signed by itself if by is nil.
func sign(tb testing.TB, template *x509.Certificate, by *Authority) ([]byte, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		tb.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	return der, key
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
