package config

import "strings"

// windowKeys returns the keys of the section at, a [Window].
func windowKeys(at string, w *Window, bytes, records int) []key {
	return []key{
		{path: strings.TrimSuffix(at, "."), doc: "Limits of the records in flight."},
		{path: at + "bytes", at: &w.Bytes, min: 1, def: bytes, doc: "Maximum bytes of unacknowledged records. This bounds the relay's memory."},
		{path: at + "records", at: &w.Records, min: 1, def: records, doc: "Maximum number of unacknowledged records."},
	}
}

// tlsKeys returns the keys of the section at, a [TLS].
func tlsKeys(at string, t *TLS) []key {
	keys := certificateKeys(at, &t.Certificates)
	enabled := key{path: at + "enabled", at: &t.Enabled, def: false, doc: "Use TLS 1.2 or later, and verify the server's certificate."}
	return append([]key{keys[0], enabled}, keys[1:]...)
}

// certificateKeys returns the keys of the section at, a [Certificates], for a broker whose addresses say whether TLS is used.
func certificateKeys(at string, t *Certificates) []key {
	return []key{
		{path: strings.TrimSuffix(at, "."), doc: "TLS. The relay reads files again for each connection."},
		{path: at + "ca_file", at: &t.CAFile, example: "/etc/outbox-cdc/ca.pem", doc: "CA certificates (PEM). Default: those of the system."},
		{path: at + "cert_file", at: &t.CertFile, doc: "Client certificate (PEM), with `key_file`."},
		{path: at + "key_file", at: &t.KeyFile, doc: "Key of the client certificate (PEM)."},
		{path: at + "server_name", at: &t.ServerName, doc: "Host name that the certificates must contain. Default: the server's host."},
		{path: at + "insecure_skip_verify", at: &t.InsecureSkipVerify, def: false, doc: "Accept any certificate. Not for production."},
	}
}
