package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
)

// A dialError is a connection that was not made: no route, no name, no listener.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// connectError says why the connection to addr could not be used, in our words, and wraps
// sink.ErrAccess if waiting will not help.
func connectError(addr string, err error, heard reply, encrypted, login bool) error {
	if _, ok := errors.AsType[*dialError](err); ok {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if reason := tlsReason(err); reason != "" {
		return fmt.Errorf("%w: %s: %s: %w", errAccess, addr, reason, err)
	}
	if k, ok := codeIn(err); ok && classify(k) == refused {
		return fmt.Errorf("%w: %s: %w", errAccess, addr, errorOf(k))
	}
	if heard == repliedTLS && !encrypted {
		return fmt.Errorf("%w: %s: the listener expects TLS: %w", errAccess, addr, err)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", addr, named(err))
	}
	switch {
	case login && heard == replied:
		// Brokers before 1.0 and some proxies say no to a password by hanging up.
		return fmt.Errorf("%w: %s: the broker closed the connection during the SASL login, which is how some say that the user name or password is wrong: %w",
			errAccess, addr, err)
	case !encrypted && heard == silent:
		return fmt.Errorf("%s: the broker closed the connection at the first request (does the listener expect TLS?): %w", addr, err)
	case encrypted && heard == silent:
		return fmt.Errorf("%s: the broker closed the connection during the TLS handshake (is it a plaintext listener?): %w", addr, err)
	}
	return fmt.Errorf("%s: the broker closed the connection: %w", addr, err)
}

// requestError says why a request over a connection that had been made failed.
func requestError(addr string, err error, login bool) error {
	if errors.Is(err, io.EOF) && !login {
		return fmt.Errorf("%s: the broker closed the connection (does the listener expect a SASL login?): %w", addr, err)
	}
	return fmt.Errorf("%s: %w", addr, named(err))
}

// tlsReason explains a TLS failure that waiting does not heal; empty for anything else.
func tlsReason(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the broker's certificate is not signed by a trusted authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the broker's certificate is for another name"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the broker's certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the listener does not speak TLS"
	}
	// package tls keeps the type of a received alert to itself.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return "the broker ended the TLS handshake (does it want a client certificate?)"
	}
	return ""
}
