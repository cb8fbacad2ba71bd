package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// certificates returns TLS settings with the files of ca_file, cert_file and key_file in the section at.
func (c *Config) certificates(at string) (*tls.Config, error) {
	ca, cert, certKey := c.field(at+"ca_file").String(), c.field(at+"cert_file").String(), c.field(at+"key_file").String()
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // which file is the operator's choice
		if err != nil {
			return nil, c.invalid(at+"ca_file", "%s", fileReason(err))
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, c.invalid(at+"ca_file", "%s contains no certificate in PEM form", ca)
		}
	}
	switch {
	case cert == "" && certKey != "":
		return nil, c.invalid(at+"key_file", "requires %scert_file", at)
	case cert != "" && certKey == "":
		return nil, c.invalid(at+"cert_file", "requires %skey_file", at)
	case cert != "":
		pair, err := tls.LoadX509KeyPair(cert, certKey)
		if err != nil {
			return nil, c.invalid(at+"cert_file", "%s", fileReason(err))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// encryption returns a function that reads the TLS files of the section at for each connection, nil if TLS is not enabled.
// Without TLS, other keys of the section are an error: who sets a certificate does not expect plain text. encryption reads
// the files once to validate them.
func (c *Config) encryption(at string) (func() (*tls.Config, error), error) {
	if !c.field(at + "enabled").Bool() {
		return nil, c.withoutEffect(at, at+"enabled is not true")
	}
	return c.certified(at)
}

// certified is encryption for a section without enabled.
func (c *Config) certified(at string) (func() (*tls.Config, error), error) {
	if _, err := c.readTLS(at); err != nil {
		return nil, err
	}
	return func() (*tls.Config, error) {
		cfg, err := c.now().readTLS(at)
		return cfg, later(err)
	}, nil
}

func (c *Config) readTLS(at string) (*tls.Config, error) {
	cfg, err := c.certificates(at)
	if err == nil {
		cfg.ServerName = c.field(at + "server_name").String()
		cfg.InsecureSkipVerify = c.field(at + "insecure_skip_verify").Bool()
	}
	return cfg, err
}

// rereadTLS makes cfg read its certificate and CA certificates through now for each handshake, if it has any.
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
			return new(tls.Certificate), nil // none, as crypto/tls does; the server decides
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
	cfg.InsecureSkipVerify = true // VerifyConnection verifies instead
	cfg.VerifyPeerCertificate = nil
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		fresh, err := now()
		if err != nil {
			return err
		}
		return verify(state.PeerCertificates, fresh.RootCAs, name)
	}
}

// verify verifies as crypto/tls does without InsecureSkipVerify. An empty name matches any. It does not use the name of
// the connection state, which is empty if the host is an IP address.
func verify(chain []*x509.Certificate, roots *x509.CertPool, name string) error {
	if roots == nil {
		return errors.New("sslrootcert is no longer set")
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

// isUnverified reports whether t accepts any certificate.
func isUnverified(t *tls.Config) bool {
	return t.InsecureSkipVerify && t.VerifyPeerCertificate == nil && t.VerifyConnection == nil
}
