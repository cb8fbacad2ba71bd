package config

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

const atTLS = "sink.kafka.tls."

// kafkaTLS returns nil where TLS is not enabled. Keys that only matter with it are then an
// error: who names a certificate does not expect plain text. What it returns reads the files
// each time; they have been read once when it returns.
func (c *Config) kafkaTLS() (func() (*tls.Config, error), error) {
	if !c.Sink.Kafka.TLS.Enabled {
		for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
			if c.isSet(atTLS + name) {
				return nil, c.invalid(atTLS+name, "has no effect: %senabled is not true", atTLS)
			}
		}
		return nil, nil //nolint:nilnil // nil is the value sink takes for no TLS
	}
	if _, err := c.readKafkaTLS(); err != nil {
		return nil, err
	}
	return func() (*tls.Config, error) {
		cfg, err := c.now().readKafkaTLS()
		return cfg, later(err)
	}, nil
}

func (c *Config) readKafkaTLS() (*tls.Config, error) {
	t := c.Sink.Kafka.TLS
	cfg, err := c.certificates(atTLS, t.CAFile, t.CertFile, t.KeyFile)
	if err == nil {
		cfg.ServerName = t.ServerName
		cfg.InsecureSkipVerify = t.InsecureSkipVerify
	}
	return cfg, err
}

// certificates returns how to encrypt with the files that ca_file, cert_file and key_file under
// the path at name.
func (c *Config) certificates(at, ca, cert, certKey string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // which file is the operator's choice
		if err != nil {
			return nil, c.invalid(at+"ca_file", "%v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, c.invalid(at+"ca_file", "%s contains no certificate in PEM form", ca)
		}
	}
	switch {
	case cert == "" && certKey != "":
		return nil, c.invalid(at+"key_file", "%scert_file is needed too", at)
	case cert != "" && certKey == "":
		return nil, c.invalid(at+"cert_file", "%skey_file is needed too", at)
	case cert != "":
		pair, err := tls.LoadX509KeyPair(cert, certKey)
		if err != nil {
			return nil, c.invalid(at+"cert_file", "%v", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
