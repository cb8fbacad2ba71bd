// Package pgserver runs a private, temporary Postgres server for the demo, for
// the benchmark and, through package pgtest, for tests.
//
// [Start] creates a data directory (initdb, trust authentication, UTF8, C
// locale) and runs postgres on it as a child process. The server listens on a
// free port of 127.0.0.1 and on a Unix socket, and is configured for logical
// replication. The server and its files are removed when this process exits,
// even if it is killed. Durability is off unless Config turns it on. Postgres
// refuses to run as root, so a root process runs it as an unprivileged user.
//
//	func main() {
//		pgserver.Init() // must be the first call of main
//		…
//		srv, err := pgserver.Start(ctx, pgserver.Config{})
//		…
//		defer srv.Stop(context.WithoutCancel(ctx))
//		conn, err := pgx.Connect(ctx, srv.DSN("postgres"))
//
// If Config.BinDir is set, Start uses the programs in that directory. If not,
// it looks for them in PATH, in the usual directories of distributions and in
// the user's cache. If it finds none, [Fetch] downloads a build of the
// embedded-postgres project into the cache.
//
// A Server's methods are safe for concurrent use, even while another goroutine
// waits for the server to exit.
package pgserver
