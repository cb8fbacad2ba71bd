// Package certtest issues TLS certificates for tests and their servers: for servers and clients, for
// any name, valid or expired. Only a test that uses [Authority.Pool] trusts the authority that signs
// them. The package panics on errors that only a bug in it can cause.
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
	"time"
)

// An Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Certificate is a certificate with its private key, as a tls.Certificate and as PEM.
type Certificate struct {
	TLS       tls.Certificate
	Cert, Key []byte
}

// New returns an authority with a new key and a self-signed certificate.
func New() *Authority {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "certtest"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, key := sign(template, nil)
	return &Authority{cert: must(x509.ParseCertificate(der)), key: key}
}

// Pool returns a pool with a's certificate, for a peer that trusts a.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns a's own certificate.
func (a *Authority) PEM() []byte { return block("CERTIFICATE", a.cert.Raw) }

// Issue returns a certificate that is valid for 24 hours and expires at until. The names are host
// names, IP addresses or a user name.
func (a *Authority) Issue(until time.Time, names ...string) Certificate {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, key := sign(template, a)
	return Certificate{
		TLS:  tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Cert: block("CERTIFICATE", der), Key: block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))),
	}
}

// sign creates a key and a certificate for it. The authority by signs the certificate; if by is nil, it
// is self-signed.
func sign(template *x509.Certificate, by *Authority) ([]byte, *ecdsa.PrivateKey) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template.SerialNumber = must(rand.Int(rand.Reader, big.NewInt(1<<62)))
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	return must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)), key
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
