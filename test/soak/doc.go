// Package soak breaks everything around the relay at random under load, and has an oracle decide
// whether the relay kept its promises.
//
//   - OUTBOX_TEST_SOAK is the number of strikes, OUTBOX_TEST_SEED chooses them, and
//     OUTBOX_TEST_JOURNAL names a file for what the writers did.
//   - OUTBOX_TEST_TAKEOVERS is the number of strikes of the soak with two relays (300 are a
//     long run), OUTBOX_TEST_SOURCE_LOSSES of the one with a missing topic.
//   - OUTBOX_TEST_TAKEOVER_RUNS is how often each takeover is timed, and
//     OUTBOX_TEST_TAKEOVER_POSTGRES the major version it is timed on.
//   - OUTBOX_TEST_MUTATION_CYCLES is the number of strikes in which the oracle has to notice
//     each bug that is planted in the relay.
//
// The oracle knows nothing of the relay but what it says on its two wires:
//
//   - [Writers] write events: rows that carry their own identity, in
//     transactions that commit, roll back, are prepared, or end in a lost
//     connection. What was done is kept in a [Journal].
//   - A [Checker] is given every record of the topics and compares it with the
//     journal as it comes: package delivery judges what is lost, a phantom, altered,
//     torn or out of order, and the Checker which duplicates a fault explains.
//   - [Confirms] is told what passes between the relay and Postgres, by a
//     proxy, and checks every position the relay confirms: each record
//     before it has to be in the broker's log at that instant.
//   - A [Sampler] watches the slot and the process.
//   - A [Nemesis] draws faults from a seed.
//
// Checker, Confirms, Journal and Nemesis are pure: no clock, no I/O except the
// journal's file, no goroutine. Any goroutine may call them.
//
// # The broker's clock
//
// A record is seen by its reader some time after the broker stored it, so
// "stored before that instant" cannot be decided by the time it was seen. The
// topics therefore need message.timestamp.type=LogAppendTime: each record then
// carries the time at which the broker appended it. Broker and checker have to
// run on one machine.
//
// # What order means
//
// The events of one aggregate are numbered 1, 2, 3, … in commit order: the
// number is drawn under a row lock and a rollback returns it. A relay that starts
// again may repeat: a repetition is a run of rising numbers that begins at or
// before what is already there, and each producer identity (KIP-98: id and
// epoch) makes one such run at most.
//
// Two relays of one slot are told apart by that identity. Each claim continues
// the producer id with a higher epoch. Once that epoch has written to a partition,
// the broker rejects every lower one there: no record of an older writer may
// follow the first record of a newer one.
//
// # Progress
//
// Soon after a fault has been repaired, every working topic receives a record of a
// row that was written since. A missing topic delays no other.
package soak
