// Package test runs the built binary against a real Postgres and a real Kafka: the main
// job at full size, every way of stopping it, and every way of breaking what it stands on.
//
// The assertion is always the same: every committed event is there, none of a rolled-back
// transaction is, first appearances of a key come in commit order, and every byte is what
// was written. See [ledger] for how that is known.
//
// OUTBOX_TEST_ROWS is the size of the big run, OUTBOX_TEST_CYCLES the number of kills of
// every kind in the crash tests.
package test
