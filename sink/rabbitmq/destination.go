package rabbitmq

import "strings"

// A destination is where a message goes.
type destination struct{ exchange, routingKey string }

// splitDestination returns the exchange and the routing key of a record's topic. If the topic has no routing key, keyed is
// false.
func splitDestination(topic string) (d destination, keyed bool) {
	exchange, key, keyed := strings.Cut(topic, "/")
	return destination{exchange, key}, keyed
}

// String returns a description for messages.
func (d destination) String() string {
	if d.exchange == "" {
		return "queue " + d.routingKey
	}
	return "exchange " + d.exchange
}
