// Package bench is the program outbox-cdc-bench: it measures the relay, the built binary, side by side with
// Postgres' own pg_recvlogical, which is as fast as a slot can be read, and, if asked, with Debezium, on the
// user's servers or on its own.
//
// A suite (plan.go) says what is measured, the harness measures it with package measure and enters it into a
// report, which is printed as Markdown and judged by a gate. Package write measures what an event costs the
// transaction that writes it.
package bench
