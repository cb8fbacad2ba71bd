// Package soak runs the relay under load, injects random faults into the relay, Postgres, Kafka
// and the network, and checks that the relay keeps its guarantees.
//
// These environment variables configure a run:
//
//   - OUTBOX_TEST_SOAK is the number of strikes, and OUTBOX_TEST_SEED the seed that selects
//     them. OUTBOX_TEST_JOURNAL is the path of a file that lists what the writers did.
//   - OUTBOX_TEST_TAKEOVERS is the number of strikes of the soak with two relays. A long run
//     has 300. OUTBOX_TEST_SOURCE_LOSSES is that of the soak with a missing topic.
//   - OUTBOX_TEST_EXACTLY_ONCE=1 gives the relays of the first two soaks exactly_once. The oracle then reads
//     only committed records, and no fault explains a duplicate.
//   - OUTBOX_TEST_SLOT_LOSSES is the number of strikes of each soak with slot losses, with one relay
//     and with two.
//   - OUTBOX_TEST_TAKEOVER_RUNS is how often each takeover is timed, and
//     OUTBOX_TEST_TAKEOVER_POSTGRES the major version of Postgres for it.
//   - OUTBOX_TEST_MUTATION_CYCLES is the number of strikes within which the oracle must find
//     each bug that a test plants in the relay.
//
// The oracle is the part that checks the relay. It observes only the relay's connections to
// Postgres and to Kafka:
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
// the record at a certain moment. The topics need
// message.timestamp.type=LogAppendTime, so that each record carries the time at
// which the broker appended it. The broker and the oracle must run on one machine.
//
// # The order of records
//
// The events of one aggregate have the numbers 1, 2, 3, … in commit order. A writer
// draws the number under a row lock, and a rollback returns it. A relay that
// restarts may resend records. The resent records of an aggregate are a run of
// increasing numbers. The run begins at or before the highest number that is
// already in the topic. Each producer identity (KIP-98: id and epoch) writes at
// most one such run.
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
// # Progress
//
// Soon after a fault has ended, every existing topic receives a record of a row
// that was written after the fault. A missing topic delays no other topic.
package soak
