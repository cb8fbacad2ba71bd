// Package soak runs the relay under load, injects random faults into the relay, Postgres, the broker
// and the network, and checks that the relay keeps its guarantees.
//
// These environment variables configure a run:
//
//   - OUTBOX_TEST_SOAK is the number of strikes, and OUTBOX_TEST_SEED the seed that selects
//     them. OUTBOX_TEST_JOURNAL is the path of a file that lists what the writers did.
//   - OUTBOX_TEST_TAKEOVERS is the number of strikes of the soak with two relays. A long run
//     has 300. OUTBOX_TEST_SOURCE_LOSSES is that of the soak with a missing topic.
//   - OUTBOX_TEST_SLOT_LOSSES is the number of strikes of each soak with slot losses, with one relay
//     and with two.
//   - OUTBOX_TEST_OVER is the number of strikes with each broker other than Kafka, with one relay. A
//     long run has 300. OUTBOX_TEST_OVER_TAKEOVERS is that with two relays.
//   - OUTBOX_TEST_PARKS is the number of strikes of the soak with parked keys.
//   - OUTBOX_TEST_TAKEOVER_RUNS is how often each takeover is timed, and
//     OUTBOX_TEST_TAKEOVER_POSTGRES the major version of Postgres for it.
//   - OUTBOX_TEST_MUTATION_CYCLES is the number of strikes within which the oracle must find
//     each bug that a test plants in the relay.
//
// The oracle is the part that checks the relay. It observes only the relay's connection to
// Postgres, and what the broker has stored:
//
//   - [Writers] write events: rows that carry their own identity, in
//     transactions that commit, roll back, are prepared, or end in a lost
//     connection. A [Journal] records the transactions.
//   - A [Checker] compares every record of the topics with the journal when the
//     record arrives. Package delivery finds events that are lost, phantom,
//     altered, torn or out of order. The Checker decides which duplicates a fault
//     explains.
//   - [Confirms] receives the messages between the relay and Postgres from a
//     proxy and checks every position that the relay confirms. At that moment the
//     broker must have stored every record before the position.
//   - A [Sampler] observes the slot and the relay's process.
//   - A [Nemesis] draws faults from a seed.
//
// Checker, Confirms, Journal and Nemesis use no clock and no goroutine, and no I/O
// except the journal's file. They are safe for concurrent use.
//
// # The broker's clock
//
// The oracle reads a record some time after the broker has stored it. The time at
// which it reads the record therefore does not show whether the broker had stored
// the record at a certain moment. How the oracle knows that depends on the broker:
//
//   - Kafka: the topics need message.timestamp.type=LogAppendTime, so that each
//     record carries the time at which the broker appended it.
//   - JetStream: each message has the time at which the stream stored it.
//   - SQS and webhooks: the fake and the receiver run in the process of the test,
//     and call the oracle when they store a record.
//   - Redis Streams and RabbitMQ do not say it. There, the proxy holds back each new
//     position until the oracle has read all that is stored, and the position is
//     judged before Postgres gets it. What the broker stores in these milliseconds
//     is not found to be late. While the broker is down, the position waits; then
//     Postgres may end the session.
//
// The broker and the oracle must run on one machine.
//
// # Other brokers than Kafka
//
// The queue of RabbitMQ that the oracle reads is a stream, because a reader of a
// stream continues at an offset after a restart. A quorum queue has the same
// messages, so that each confirm waits for both.
//
// What may be a duplicate is what docs/sinks.md says of each broker. Kafka: only what a
// refill sends again, and dead letters of parked keys. JetStream, Redis
// and SQS (FIFO) drop what is sent again: no fault explains a duplicate. With RabbitMQ
// and webhooks, a relay that was killed repeats the rows that Postgres streams again,
// and after a fault of the broker or of the connection to it, the relay may repeat
// rows that it had not confirmed. Nothing else explains a duplicate: no stop, no pause
// and no fault of Postgres. Their records have no producer identity, and only those of
// a key are in order, so a duplicate may also count for the fault before the last one.
//
// The planted bugs of [TestPlants] are in the source code of the sinks.
//
// # The order of records
//
// The events of one aggregate have the numbers 1, 2, 3, … in commit order. A writer
// draws the number under a row lock, and a rollback returns it. A relay that
// restarts may resend records. The resent records of an aggregate are a run of
// increasing numbers. The run begins at or before the highest number that is
// already in the topic. Each producer identity (KIP-98: id and epoch) writes at
// most one such run, and may then go on behind the events that are already in the topic.
//
// The producer identity also distinguishes two relays of one slot. Each claim
// continues the producer id with a higher epoch. After that epoch has written to a
// partition, the broker rejects every lower epoch there. So no record of an older
// writer may follow the first record of a newer one.
//
// # Lost slots
//
// In the soaks with slot losses, a relay refills what a dropped slot had not delivered. Its refilled records
// must continue each aggregate like those of the stream. The relay may only confirm the new slot's position
// after the broker has stored every row that the lost slot had streamed. A refill may duplicate the rows that
// were delivered in the last three seconds before the loss. That is counted from the last strike before which
// the relay was undisturbed for so long, because a relay that is disturbed may write no snapshot.
//
// # Parked keys
//
// In the soak with parked keys, the topic rejects some events because they are too large. The relay parks their
// aggregates, and an operator releases and discards the parked records during the strikes, with the built program.
// Sometimes the operator raises the topic's limit before. The events of an aggregate must be in order in the topic,
// and in order in the dead-letter topic. An event may be missing from the topic only if the relay's record says
// that the operator has discarded it. A released record may be a duplicate: the release may have been interrupted.
//
// # Progress
//
// Soon after a fault has ended, every existing topic receives a record of a row
// that was written after the fault. A missing topic delays no other topic.
package soak
