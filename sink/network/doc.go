// Package network makes the network connections of brokers: over TCP or the caller's dialer, with TLS if it is configured, to
// one server or to the first of several that responds. It knows no protocol above TLS.
package network
