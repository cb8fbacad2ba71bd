// Package test runs the built binary against a real Postgres and a real Kafka: the main
// job at full size, every way of stopping it, and every way of breaking what it stands on.
//
// The assertion is always the same: every committed event is there, none of a rolled-back
// transaction is, first appearances of a key come in commit order, and every byte is what
// was written. See [ledger] for how that is known, and package oracle for how it is known
// in the soak, which also judges every position that is confirmed.
//
//   - OUTBOX_TEST_ROWS is the size of the big run.
//   - OUTBOX_TEST_HUGE=1 adds a value of 600 MB, which a server cannot print; it takes that
//     several times as much memory.
//   - OUTBOX_TEST_CYCLES is the number of kills of every kind in the crash tests.
//   - OUTBOX_TEST_FREEZE is for how many seconds a broker is frozen.
//   - OUTBOX_TEST_SOAK is the number of strikes of the soak, OUTBOX_TEST_SEED chooses them,
//     and OUTBOX_TEST_JOURNAL names a file for what its writers did.
//   - OUTBOX_TEST_MUTATION_CYCLES is the number of strikes in which the oracle has to notice
//     each bug that is planted in the relay.
package test
