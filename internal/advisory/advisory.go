// Package advisory finds the sessions that hold the advisory lock of setup, migrate or prune. Each of these
// commands takes a lock, so that two runs do not overlap.
//
// Every role of the database can take any advisory lock and keep it. So the commands wait for their lock
// with a limit, and return a [HeldError] if it is not granted in time.
package advisory

import "fmt"

// Forms of the key of a lock, as in objsubid of pg_locks.
const (
	OneKey  = 1 // a bigint
	TwoKeys = 2 // two integers: the first is the upper half of the bigint
)

// Holders returns a statement that selects one text: the sessions that hold the lock, or an empty text if
// the lock is free. key is an SQL expression for the key as a bigint. The statement needs no privilege:
// every role may see the process, role and application name of every session.
func Holders(key string, form int) string {
	return fmt.Sprintf(`
		SELECT COALESCE(pg_catalog.string_agg(COALESCE(
			pg_catalog.format('process %%s (role %%s, application %%s)', l.pid, `+printable("a.usename")+`, `+printable("a.application_name")+`),
			'a prepared transaction (pg_prepared_xacts)'), ', ' ORDER BY l.pid), '')
		FROM %s l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid`, Granted(key, form))
}

// Granted returns, for a FROM clause, the rows of pg_locks of the sessions that hold the lock. See [Holders].
func Granted(key string, form int) string {
	return fmt.Sprintf(`(
		SELECT * FROM pg_catalog.pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = %d
			AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
			AND classid::bigint << 32 | objid::bigint = (%s)::bigint)`, form, key)
}

// printable returns an SQL expression for a name in quotes, without control characters.
func printable(name string) string {
	return `pg_catalog.to_json(pg_catalog.regexp_replace(COALESCE(` + name + `::text, '?'), '[[:cntrl:]]', '?', 'g'))`
}

// A HeldError says that a command did not run because other sessions hold its lock.
type HeldError struct {
	What    string // what was not done
	Holders string // the result of the statement of [Holders]
	Err     error  // the error of the server; may be nil
}

// Error names the sessions.
func (e *HeldError) Error() string {
	if e.Holders == "" {
		return e.What + ": the advisory lock was held by a session that has ended in the meantime"
	}
	return e.What + ": the advisory lock is held by " + e.Holders
}

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }
