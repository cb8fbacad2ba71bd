// Package conformance reads recorded cases of what Debezium writes for an outbox, and
// compares what another program has written with them.
//
// A case is a folder: the statements that make the tables, the connector's configuration, the
// statements that write, and every record that came out. testdata/README.md describes the
// files; a folder of folders in that form is a corpus. The package runs nothing but the
// statements ([script]): starting servers and the program under test is the caller's.
package conformance
