package rabbittest

import (
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

const (
	confFile    = "rabbitmq.conf"
	pluginsFile = "enabled_plugins"
	cookieFile  = ".erlang.cookie"

	// certificateUser is the name in the client certificate.
	certificateUser = "rabbittest"
)

// configure writes the files that the server reads.
func (s *Server) configure(cfg Config) error {
	settings := map[string]string{
		"listeners.tcp.1":   s.Addr(),
		"log.console":       "true",
		"log.console.level": "info",
		"log.file":          "false",
		"default_user":      "guest",
		"default_pass":      "guest",
	}
	files := map[string]string{
		cookieFile:  s.cookie,
		pluginsFile: fmt.Sprintf("[%s].\n", strings.Join(append([]string{"rabbitmq_consistent_hash_exchange"}, cfg.Plugins...), ",")),
	}
	if cfg.TLS {
		s.tls = newCertificates()
		for name, pem := range map[string][]byte{"ca.pem": s.tls.authority.PEM(), "cert.pem": s.tls.server.Cert, "key.pem": s.tls.server.Key} {
			files[name] = string(pem)
		}
		maps.Copy(settings, map[string]string{
			"listeners.ssl.1":                  s.TLSAddr(),
			"ssl_options.cacertfile":           s.path("ca.pem"),
			"ssl_options.certfile":             s.path("cert.pem"),
			"ssl_options.keyfile":              s.path("key.pem"),
			"ssl_options.verify":               "verify_peer",
			"ssl_options.fail_if_no_peer_cert": "false",
			"ssl_cert_login_from":              "common_name",
		})
	}
	if slices.Contains(cfg.Plugins, "rabbitmq_auth_mechanism_ssl") {
		settings["auth_mechanisms.1"], settings["auth_mechanisms.2"] = "PLAIN", "EXTERNAL"
	}
	maps.Copy(settings, cfg.Settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = %s\n", name, settings[name])
	}
	files[confFile] = conf.String()
	for name, text := range files {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

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
		user:      authority.Issue(until, certificateUser),
	}
}

// TLSConfig returns a client configuration that trusts the server's certificate and has a client certificate, which is
// for the user rabbittest. Config.TLS must be set.
func (s *Server) TLSConfig() *tls.Config {
	return &tls.Config{
		RootCAs: s.tls.authority.Pool(), Certificates: []tls.Certificate{s.tls.user.TLS}, MinVersion: tls.VersionTLS12,
	}
}

// AuthorityPEM returns the certificate of the authority that signed the server's certificate. Config.TLS must be set.
func (s *Server) AuthorityPEM() []byte { return s.tls.authority.PEM() }
