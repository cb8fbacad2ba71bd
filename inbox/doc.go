// Package inbox processes each event once, in the order of its key, and retries events that fail.
//
// A broker delivers a record at least once: after a crash, a rebalance or a replay it delivers some
// records again. A consumer that writes to Postgres can ignore duplicates if it records, in the
// transaction of the effects, which events it has processed. This package does that. It is for
// services that use pgx; for database/sql there is [ClaimSQL].
//
// Create the tables with `outbox-cdc migrate up --only inbox`. Then write a handler for each event
// type and run a [Processor] with an adapter for your broker's client:
//
//	processor, err := inbox.NewProcessor(pool, inbox.Config{
//		Consumer: "notifications",
//		Handlers: map[string]inbox.Handler{"OrderPlaced": inbox.JSON(welcome), "OrderPaid": inbox.JSON(thank)},
//	})
//	...
//	err = inboxfranz.Run(ctx, processor, "notifications", []string{"outbox.event.order"}, kgo.SeedBrokers("kafka:9092"))
//
// Adapters are inboxfranz (franz-go) and inboxsarama (sarama) for Kafka, inboxnats for NATS JetStream,
// inboxrabbit for RabbitMQ, and inboxredis for Redis Streams. Package inboxprom has the Prometheus
// metrics. If you have a consumer loop of your own, [Claim] is all you need:
//
//	fresh, err := inbox.Claim(ctx, tx, "notifications", eventID)
//	if err != nil || !fresh {
//		return err
//	}
//	... // the effects, in tx
//
// # Guarantees
//
//   - Once: the effects that a handler writes in its transaction are committed once for each event id,
//     until the claim is pruned ([Store.Prune]). Effects elsewhere, such as a mail, can happen again
//     if the attempt fails afterwards.
//   - No loss: an offset is committed after the transaction in which the record was handled, or was
//     stored in the table inbox_events.
//   - Order: events with the same topic and key take effect in partition order, across retries,
//     rebalances and crashes. If an event waits for a retry or is parked, the later events of its key
//     wait behind it. Other keys continue.
//   - Bounded memory: one event for each running call of Handle, and Config.Workers events that are
//     retried. Waiting events are in inbox_events. When Config.MaxWaiting events wait there, further
//     events stay in the broker.
//
// # Failed events
//
// If a handler returns an error or panics, the event is retried after Config.RetryDelays. When the
// last attempt has failed, or the error is [Permanent], the event is parked: it stays in inbox_events
// until you run `outbox-cdc inbox retry` or `outbox-cdc inbox discard`. Each failed attempt is logged
// to Config.Logger and passed to Config.OnFailure.
//
// # How it works
//
// [Processor.Handle] takes an event from the broker. In one transaction it claims the event and runs the
// handler. That is one round trip more than the handler alone. Only if the attempt fails, or if an
// earlier event of the key waits, does Handle store the event in inbox_events. Then its offset may be
// committed, because the table keeps the event. [Processor.Run] retries stored events.
//
// In inbox_events the events of one topic and key form a lane, in the order in which they arrived.
// Only the first event of a lane is due or parked. The transaction that removes it makes the next one
// due. An advisory lock serializes the changes of a lane.
//
// # Why events stay in order
//
// A processor handles the records of a partition one after the other, starting at the committed offset
// or before it. So when it reaches an event:
//
//  1. A committed transaction has claimed or stored every earlier event of the partition.
//  2. The claiming statement claims the event only if its snapshot, taken after 1, has no event in its
//     lane. Then all earlier events of the key are claimed. Otherwise the event is stored behind them.
//  3. Only the first event of a lane is tried. The transaction that claims it removes it from the lane.
//
// So an event is claimed after all earlier events of its key, and a claim is committed with the effects.
// A processor that has lost its partition without noticing can only repeat events for which 1 holds. Each
// of its attempts finds the claim of another processor, or makes the claim that the other one then finds.
//
// Brokers other than Kafka have no partitions. Their adapters do the same for each key: they handle the
// events of a key one after the other, in the order of the stream or queue, starting at the first one that
// is not acknowledged or before it.
//
// # Why effects are committed once
//
// A claim is a row of a unique index. A second transaction that inserts the same row waits for the end of
// the first one. This holds for two consumers with the same record, and for an attempt that has lost its
// lease.
//
// # Leases
//
// A retried event belongs to a processor until leased_until, by the clock of the database. The processor
// renews the lease while the attempt runs. If it crashes, another processor takes the event over when the
// lease expires. Leases only avoid needless work: claims ensure that effects happen once.
//
// # Rebalances and crashes
//
// The adapters cancel the context of a revoked partition. A running handler has Config.Grace to finish. If
// it does, its offset is committed. Otherwise its transaction is rolled back, and the new owner of the
// partition starts with that event. If both handle the same event, the second one waits for the claim of
// the first one.
//
// If a host vanishes in the middle of a transaction, Postgres keeps its claim until it closes the session.
// So each transaction sets idle_in_transaction_session_timeout to Timeout plus Grace plus 5 s.
//
// # Requirements
//
//   - Topics that keep the order of a key in a partition, and records with the headers id and
//     eventType. The records of the relay have them. For other records set Config.ParseEvent.
//   - One connection for each partition that is handled at the same time, plus Workers and 2. With
//     fewer connections attempts wait for each other, and leases can expire meanwhile.
//
// A connection pooler in transaction mode works.
package inbox
