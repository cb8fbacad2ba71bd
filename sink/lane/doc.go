// Package lane is the [sink.Writer] of brokers that acknowledge each record on its own and do not order those that are
// in flight: JetStream, RabbitMQ, Redis Streams, SQS, SNS, and HTTP. The package of a broker provides a [Transport], which
// writes requests and reports their outcomes, and a [sink.Sink] that embeds a [Base].
//
// # Lanes
//
// A lane is the records of a destination that are in order: those of one key, or all of them. It exists while it has
// records, so any number of keys needs no more memory than the window. The Writer keeps the order of a lane by having at
// most one request of it outstanding. A lane is in one of these states:
//
//	ready    waits for the next call of Publish
//	busy     has a request outstanding
//	delayed  waits for its back-off after an error
//	parked   waits for another lane, which asks whether the destination is there
//
// A lane with an error does not delay another one, with two exceptions. While the broker cannot be reached, all lanes
// wait, and one request at a time asks for it. While a destination is missing, one of its lanes asks for it and the others
// wait.
//
// A request that is sent again has the same records as before, as far as they are not acknowledged, so that a broker
// with deduplication can recognize it. A broker without stores the records of a request twice if its response is lost.
//
// # Goroutines
//
// Run has two goroutines: one applies outcomes and calls Publish, which may block, and the other one writes log lines. Send
// copies a record under a mutex. Done only queues the outcome.
package lane
