// Package pgtest provides real Postgres servers and databases to tests.
//
// A package that uses it has this TestMain, which stops the shared servers
// after the tests. [Wrap] combines it with package leak and package kafkatest:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//	func TestMain(m *testing.M) { leak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m))) }
//
// and then, in a test:
//
//	db := pgtest.Database(t)            // a new database on the server that all tests of the binary share
//	db.Exec(t, `CREATE TABLE outbox (…)`)
//	conn := db.Conn(t)                  // *pgx.Conn, closed when the test ends; also db.Pool(t), db.ReplicationConn(t)
//	cfg := db.Config(t)                 // *pgconn.Config; db.DSN is the URL
//
//	srv := pgtest.Start(t, pgserver.Config{}) // a server of this test: Shutdown, Immediate, Kill, Restart
//	db := pgtest.DatabaseOn(t, srv)
//
//	standby := pgtest.Standby(t, srv, srv.Addr(), db.Name, nil) // a standby server of srv
//	restored := pgtest.Restored(t, srv)                         // a server restored from a backup of srv
//
//	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) { … })
//
// When the test ends, the package closes its connections and drops its database
// and the database's replication slots, even active ones. Parallel tests may share
// the server. But Postgres creates a slot only after all transactions that are
// open on the server have ended, so a test that keeps a transaction open must use
// a server of its own.
//
// # Versions of Postgres
//
// OUTBOX_TEST_POSTGRES is a list, separated by ':', of directories of server
// programs and of major versions. Server and Database use the first entry,
// EachVersion uses all of them. The default is the version that [pgserver.Find]
// finds, or downloads once into the user's cache. In a full run
// (OUTBOX_TEST_FULL=1), the default is every supported major version, the newest
// first. This command downloads versions into the cache:
//
//	go run ./test/kit/pgtest/fetch 14 16 17 18
//
// If there is no Postgres, tests are skipped; in a full run they fail.
package pgtest
