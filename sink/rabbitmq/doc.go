// Package rabbitmq implements package sink for RabbitMQ, with AMQP 0-9-1.
//
// [Config] is the [sink.Broker]. Its Writer is that of package lane over a transport of this package: at most one
// message of a key is unconfirmed, so messages of a key stay in order whatever the broker does with others.
//
// # Destinations
//
// A destination is an exchange, optionally followed by a slash and a routing key:
//
//	orders                  exchange orders; the routing key is the header eventType
//	orders/order.shipped    exchange orders, routing key order.shipped
//	/dead-letters           the default exchange, which routes to the queue dead-letters
//
// The name of an exchange has no slash. A routing key may have one.
//
// # What the broker's responses mean
//
// Every message is persistent and mandatory, and its channel is in confirm mode. A message that is confirmed and was not
// returned is stored. A message that no queue takes is returned before it is confirmed: it is a rejected record. A negative
// confirm is retried.
//
// The broker closes a channel, with all messages in flight on it, because of one message: its exchange does not exist, the
// user may not write there, or it is too large. So a message that may have this effect travels alone, on a channel of
// its own: the first one for an exchange, those that were on a channel when it was closed, and those of more than 128 KiB that
// are larger than any that was confirmed.
package rabbitmq
