package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
)

// TLSReason explains a TLS failure for which a retry does not help. It returns "" for any other error.
// server is what the text calls the peer, such as "broker".
func TLSReason(err error, server string) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the " + server + "'s certificate is not signed by a trusted authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the " + server + "'s certificate is for another name"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the " + server + "'s certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the " + server + " does not speak TLS"
	}
	// Package tls does not export the type of an alert that it receives over TCP.
	op, isRemote := errors.AsType[*net.OpError](err)
	if _, ok := errors.AsType[tls.AlertError](err); ok || isRemote && op.Op == "remote error" {
		return "the " + server + " ended the TLS handshake (does it want a client certificate?)"
	}
	return ""
}
