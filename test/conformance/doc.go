// Package conformance reads recorded cases of the records that Debezium writes for an outbox, and compares
// another program's records with them.
//
// A case is a directory: the statements that create the tables, the connector's configuration, the
// statements that write rows, and every resulting record. testdata/README.md describes the files. A corpus
// is a directory of such directories. The package only runs the statements ([script]); the caller starts the
// servers and the program under test.
//
// Its tests also replace a running Debezium with the relay.
package conformance
