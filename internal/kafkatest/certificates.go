package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// certificates are an authority with one server and one client certificate.
type certificates struct {
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	server pair
	user   pair
}

type pair struct{ cert, key []byte } // PEM

func newCertificates() (*certificates, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificateTemplate("kafkatest authority", 1)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	c := &certificates{key: key}
	if c.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if c.server, err = c.issue("127.0.0.1", 2, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	if c.user, err = c.issue("kafkatest", 3, x509.ExtKeyUsageClientAuth); err != nil {
		return nil, err
	}
	return c, nil
}

func certificateTemplate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func (c *certificates) issue(name string, serial int64, usage x509.ExtKeyUsage) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template := certificateTemplate(name, serial)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost"}
	cert, err := x509.CreateCertificate(rand.Reader, template, c.ca, key.Public(), c.key)
	if err != nil {
		return pair{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: block("CERTIFICATE", cert), key: block("PRIVATE KEY", pkcs8)}, nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// properties are PEM stores in the file itself (KIP-651). The client's
// certificate is looked at if there is one.
func (c *certificates) properties() map[string]string {
	return map[string]string{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.certificate.chain": string(c.server.cert),
		"ssl.keystore.key":               string(c.server.key),
		"ssl.truststore.type":            "PEM",
		"ssl.truststore.certificates":    string(block("CERTIFICATE", c.ca.Raw)),
		"ssl.client.auth":                "requested",
	}
}

func (c *certificates) client() *tls.Config {
	user, err := tls.X509KeyPair(c.user.cert, c.user.key)
	if err != nil {
		panic(fmt.Sprintf("a certificate of our own making: %v", err))
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{user}, MinVersion: tls.VersionTLS12}
}
