// Package pgserver runs a private, throw-away Postgres server: for the demo,
// for the benchmark and, through package pgtest, for tests.
//
// [Start] creates a data directory (initdb, trust authentication, UTF8, C
// locale) and runs postgres on it as a child process, on a free port of
// 127.0.0.1 and a Unix socket, configured for logical replication. The server
// and its files are removed when this process ends, even if it is killed.
// Durability is off unless Config asks for it. Postgres refuses to run as root:
// a root process runs it as an unprivileged user.
//
//	func main() {
//		pgserver.Init() // must be the first call of main
//		…
//		srv, err := pgserver.Start(ctx, pgserver.Config{})
//		…
//		defer srv.Stop(context.WithoutCancel(ctx))
//		conn, err := pgx.Connect(ctx, srv.DSN("postgres"))
//
// The server's programs are taken from the first of these that has them:
// Config.BinDir, PATH, the usual directories of distributions, the user's
// cache, and finally the embedded-postgres project, whose builds [Fetch]
// downloads into the cache.
//
// A Server's methods are safe for concurrent use, even while another goroutine
// waits for the server to end.
package pgserver
