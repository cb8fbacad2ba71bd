// Package orms has only tests. They show, with a real server, how to get the *sql.Tx for outbox.WriteSQL and
// outbox.WriteMessageSQL from sqlx, GORM, ent and bun. It is a module of its own, so that the relay and
// package outbox do not depend on these libraries.
package orms
