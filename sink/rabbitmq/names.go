package rabbitmq

import (
	"fmt"
	"strings"
)

// Names are the rules for destinations: an exchange, or an exchange and a routing key after a slash.
type Names struct{}

// Illegal returns why a destination of this name cannot be written, or "" if it can.
func (Names) Illegal(name string) string {
	d, keyed := splitDestination(name)
	switch {
	case name == "":
		return "is empty"
	case d.exchange == "" && d.routingKey == "":
		return "names neither an exchange nor a queue"
	case d.exchange == "" && strings.HasPrefix(d.routingKey, "amq."):
		return "names a queue that begins with amq., which is reserved for the broker's own"
	case len(d.exchange) > maxShort:
		return fmt.Sprintf("has an exchange of %d bytes, RabbitMQ allows %d", len(d.exchange), maxShort)
	case keyed && len(d.routingKey) > maxShort:
		return fmt.Sprintf("has a routing key of %d bytes, RabbitMQ allows %d", len(d.routingKey), maxShort)
	}
	return ""
}
