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
		cfg, err := c.readKafkaTLS()
		return cfg, later(err)
	}, nil
}

func (c *Config) readKafkaTLS() (*tls.Config, error) {
	t := c.Sink.Kafka.TLS
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator's explicit choice, warned about at the start
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, c.invalid(atTLS+"ca_file", "%v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, c.invalid(atTLS+"ca_file", "%s contains no certificate in PEM form", t.CAFile)
		}
	}
	switch {
	case t.CertFile == "" && t.KeyFile != "":
		return nil, c.invalid(atTLS+"key_file", "%scert_file is needed too", atTLS)
	case t.CertFile != "" && t.KeyFile == "":
		return nil, c.invalid(atTLS+"cert_file", "%skey_file is needed too", atTLS)
	case t.CertFile != "":
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, c.invalid(atTLS+"cert_file", "%v", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
