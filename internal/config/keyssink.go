package config

import "strings"

var sinkKeys = []key{{path: "sink", kind: section, doc: "The destination of records: one of these sections."}}

// windowKeys returns the keys of the section at, a [Window].
func windowKeys(at string, bytes, records int) []key {
	return []key{
		{path: strings.TrimSuffix(at, "."), kind: section, doc: "Limits of the records in flight."},
		{path: at + "bytes", kind: integer, min: 1, def: bytes, doc: "Maximum bytes of unacknowledged records. This bounds the relay's memory."},
		{path: at + "records", kind: integer, min: 1, def: records, doc: "Maximum number of unacknowledged records."},
	}
}

// tlsKeys returns the keys of the section at, a [TLS].
func tlsKeys(at string) []key {
	keys := certificateKeys(at)
	enabled := key{path: at + "enabled", kind: boolean, def: false, doc: "Use TLS 1.2 or later, and verify the server's certificate."}
	return append([]key{keys[0], enabled}, keys[1:]...)
}

// certificateKeys returns the keys of the section at, a [Certificates], for a broker whose addresses say whether TLS is used.
func certificateKeys(at string) []key {
	return []key{
		{path: strings.TrimSuffix(at, "."), kind: section, doc: "TLS. The relay reads files again for each connection."},
		{path: at + "ca_file", kind: text, example: "/etc/outbox-cdc/ca.pem", doc: "CA certificates (PEM). Default: those of the system."},
		{path: at + "cert_file", kind: text, doc: "Client certificate (PEM), with `key_file`."},
		{path: at + "key_file", kind: text, doc: "Key of the client certificate (PEM)."},
		{path: at + "server_name", kind: text, doc: "Host name that the certificates must contain. Default: the server's host."},
		{path: at + "insecure_skip_verify", kind: boolean, def: false, doc: "Accept any certificate. Not for production."},
	}
}
