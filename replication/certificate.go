package replication

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// certificateRemedy returns how to fix the error of a TLS handshake, as the end of a sentence. It is empty if the error is
// not about the server's certificate.
func certificateRemedy(err error) string {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		last := unknown.Cert
		if failed, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && len(failed.UnverifiedCertificates) > 0 {
			last = failed.UnverifiedCertificates[len(failed.UnverifiedCertificates)-1]
		}
		if last == nil {
			return ""
		}
		return fmt.Sprintf("; the trusted root certificates do not contain %.200q, which issued it: set sslrootcert in source.dsn to a file with that certificate", last.Issuer.String())
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		if len(name.Certificate.DNSNames) == 0 {
			return "; the certificate names no host: set sslmode=verify-ca in source.dsn, with the sslrootcert of this server alone"
		}
		return "; connect by a name of the certificate (host in source.dsn)"
	}
	return ""
}
