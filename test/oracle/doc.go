// Package oracle decides whether a relay kept its promises while everything
// around it was broken.
//
// It consists of parts that know nothing of the relay but what it says on its
// two wires:
//
//   - [Writers] write events: rows that carry their own identity, in
//     transactions that commit, roll back, are prepared, or end in a lost
//     connection. What was done is kept in a [Journal].
//   - A [Checker] is given every record of the topics and compares it with the
//     journal as it comes: nothing lost, invented, altered, torn or out of
//     order, and no more repeated than a fault explains.
//   - [Confirms] is told what passes between the relay and Postgres, by a
//     [WALProxy], and checks every position the relay confirms: each record
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
// number is drawn under a row lock and a rollback returns it. So a gap is a
// loss, whatever the order of commits among aggregates was. A relay that starts
// again may repeat: a repetition is a run of rising numbers that begins at or
// before what is already there, and each producer identity (KIP-98: id and
// epoch) makes one such run at most.
package oracle
