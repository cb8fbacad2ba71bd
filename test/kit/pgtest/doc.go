// Package pgtest gives tests a real Postgres.
//
// A package that uses it has this TestMain, whose Main also stops the servers
// that the tests shared; goleak and package kafkatest wrap alike:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m))) }
//
// and then, in a test:
//
//	db := pgtest.Database(t)            // a fresh database on the server all tests of the binary share
//	db.Exec(t, `CREATE TABLE outbox (…)`)
//	conn := db.Conn(t)                  // *pgx.Conn, closed at the end; db.Pool(t), db.ReplicationConn(t) alike
//	cfg := db.Config(t)                 // *pgconn.Config; db.DSN is the URL
//
//	srv := pgtest.Start(t, pgserver.Config{}) // a server of its own: Shutdown, Immediate, Kill, Restart
//	db := pgtest.DatabaseOn(t, srv)
//
//	standby := pgtest.Standby(t, srv, srv.Addr(), db.Name, nil) // and pgtest.Restored(t, srv), of a backup
//
//	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) { … })
//
// Everything is removed when the test ends: connections, the database, its
// replication slots, active ones too. Tests in parallel may share the server,
// but creating a slot waits for every transaction of the server that is open
// at that moment: a test that keeps one open takes a server of its own.
//
// Which Postgres: OUTBOX_TEST_POSTGRES is a list, separated by ':', of
// directories of server programs and of major versions. The first is the
// version of Server and Database; EachVersion runs over all. Unset, it is the
// one that [pgserver.Find] finds or downloads, once, into the user's cache; in a
// full run (OUTBOX_TEST_FULL=1) every major version, the newest first. Versions
// are put into the cache by
//
//	go run ./test/kit/pgtest/fetch 14 16 17 18
//
// If no Postgres can be had, tests are skipped; in a full run they fail.
package pgtest
