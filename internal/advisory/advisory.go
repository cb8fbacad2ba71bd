// Package advisory names who holds one of the advisory locks by which setup, migrate and prune take turns.
//
// Postgres lets every role of the database take any advisory lock, and keep it. So none of them waits
// for its lock without a limit, and a lock that is not granted is a [HeldError], never a success.
package advisory

import "fmt"

// Forms of a lock's key, as pg_locks shows them in objsubid.
const (
	OneKey  = 1 // a bigint
	TwoKeys = 2 // two integers: the first is the upper half of the bigint
)

// Holders returns the statement that selects one text: the sessions that hold the lock, empty if it is
// free. key is an SQL expression for the key as a bigint. Every role may see the process, role and
// application name of every session.
func Holders(key string, form int) string {
	return fmt.Sprintf(`
		SELECT COALESCE(pg_catalog.string_agg(COALESCE(
			pg_catalog.format('process %%s (role %%s, application %%s)', l.pid, `+printable("a.usename")+`, `+printable("a.application_name")+`),
			'a prepared transaction (pg_prepared_xacts)'), ', ' ORDER BY l.pid), '')
		FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = %d
			AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
			AND l.classid::bigint << 32 | l.objid::bigint = (%s)::bigint`, form, key)
}

// printable is an expression for a name without control characters, in quotes.
func printable(name string) string {
	return `pg_catalog.to_json(pg_catalog.regexp_replace(COALESCE(` + name + `::text, '?'), '[[:cntrl:]]', '?', 'g'))`
}

// A HeldError says that other sessions hold a lock, so that something was not done.
type HeldError struct {
	What    string // was not done
	Holders string // as the statement of [Holders] has them
	Err     error  // may be nil
}

// Error names the sessions.
func (e *HeldError) Error() string {
	if e.Holders == "" {
		return e.What + ": the advisory lock was held by a session that has ended since"
	}
	return e.What + ": the advisory lock is held by " + e.Holders
}

// Unwrap returns what the server reported.
func (e *HeldError) Unwrap() error { return e.Err }
