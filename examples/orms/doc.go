// Package orms is no library: its tests show, and try on a real server, how what is built on
// database/sql reaches the *sql.Tx that outbox.WriteSQL and outbox.WriteMessageSQL take. It is a module of
// its own, so that none of it is a dependency of the relay or of package outbox.
package orms
