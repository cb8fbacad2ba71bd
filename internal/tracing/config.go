package tracing

import (
	"crypto/tls"
	"net/http"
)

// A Config says where spans go, and what they say beside what is known of the record.
type Config struct {
	// URL is where traces are posted: https://collector:4318/v1/traces.
	URL string

	// Headers returns what each request carries, such as a key. It is called for each one, so
	// that secrets may be replaced; an error counts as a receiver that cannot be reached. Nil:
	// nothing.
	Headers func() (http.Header, error)

	// TLS is how to encrypt. Nil stands for Go's defaults.
	TLS *tls.Config

	Service  string      // service.name of the resource
	Version  string      // service.version, and that of the instrumentation
	Resource []Attribute // what else the resource has; one of a name from above replaces that

	ClientID string // messaging.client.id
	Keys     bool   // record keys become messaging.kafka.message.key
}

// An Attribute is a name with a text.
type Attribute struct{ Name, Value string }
