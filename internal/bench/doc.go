// Package bench is the program outbox-cdc-bench. It measures the binary of the relay on the user's servers, or
// on servers that it starts itself, and compares it with pg_recvlogical, which reads a slot as fast as possible,
// and optionally with Debezium.
//
// A suite (plan.go) says what to measure. The harness measures it with package measure and adds the results to
// a report, which is printed as Markdown and can be compared with the limits of a gate. Package write measures
// the cost of an event for the transaction that writes it.
package bench
