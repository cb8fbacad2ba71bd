package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A role, a database and a server can set every parameter of a session. The functions of this file set what
// the relay depends on: what it reads, as which text, and for how long. Parameters that every supported version
// knows are in the startup message, which a pooler either obeys or rejects. The others are set afterwards.

const applicationName = "outbox-cdc"

// everySession returns the startup parameters of every connection:
//   - client_min_messages, because a warning may say that Postgres skips rows (see notice).
//   - row_security=off: Postgres returns an error in place of hiding rows. The manual also advises it for a role
//     that does not trust the owners of all tables.
//     https://www.postgresql.org/docs/current/logical-replication-security.html
//   - standard_conforming_strings and quote_all_identifiers, which the text of our statements and of their
//     results depends on, and extra_float_digits, for times that are read as seconds.
//   - No timeout. A connection that wants one sets it in its copy.
func everySession() map[string]string {
	return map[string]string{
		"client_encoding":                     "UTF8",
		"client_min_messages":                 "warning",
		"row_security":                        "off",
		"standard_conforming_strings":         "on",
		"quote_all_identifiers":               "off",
		"default_transaction_isolation":       "read committed",
		"default_transaction_read_only":       "off",
		"default_transaction_deferrable":      "off",
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_in_transaction_session_timeout": "0",
		"tcp_user_timeout":                    "0",
		"extra_float_digits":                  "3",
	}
}

// textSettings returns the startup parameters that the text of values depends on. [setMoney] sets lc_monetary,
// and [OutputPath] is the search_path.
func textSettings() map[string]string {
	return map[string]string{
		"datestyle":     "ISO",
		"intervalstyle": "postgres",
		"timezone":      "UTC",
		"bytea_output":  "hex",
	}
}

// OutputPath is the search_path while rows are read as text. The text of a regclass, and of other types that are
// printed as a name, has the schema unless that is in the search_path.
const OutputPath = "pg_catalog"

// streamSettings returns the startup parameters of a Stream.
func streamSettings() map[string]string {
	settings := everySession()
	maps.Copy(settings, textSettings())
	settings["search_path"] = OutputPath
	return settings
}

// Sets reports whether every Stream sets the parameter, in place of a role, a database, a server or a connection string.
func Sets(name string) bool {
	name = strings.ToLower(name)
	_, sets := streamSettings()[name]
	return sets && name != "search_path" || slices.ContainsFunc(laterTimeouts, func(t laterTimeout) bool { return t.name == name })
}

// Ordinary returns a copy of conn for a connection that runs statements. It replaces AfterConnect.
func Ordinary(conn *pgconn.Config) *pgconn.Config {
	conn = conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = make(map[string]string)
	}
	conn.RuntimeParams["application_name"] = cmp.Or(conn.RuntimeParams["application_name"], applicationName)
	maps.Copy(conn.RuntimeParams, everySession())
	conn.AfterConnect = afterConnect(turnOffTimeouts)
	return conn
}

// Reading returns a copy of conn for a connection that reads values in the same text format as a Stream, once
// its search_path is [OutputPath]. Before, it finds tables as the role does.
func Reading(conn *pgconn.Config) *pgconn.Config {
	conn = Ordinary(conn)
	maps.Copy(conn.RuntimeParams, textSettings())
	conn.AfterConnect = afterConnect(turnOffTimeouts, setMoney)
	return conn
}

// ReadOnly changes a result of [Ordinary] or [Reading] so that its connection cannot write. It is not a startup
// parameter, because with target_session_attrs=read-write the driver would take the server for a standby.
func ReadOnly(conn *pgconn.Config) *pgconn.Config {
	before := conn.AfterConnect
	conn.AfterConnect = afterConnect(before, func(ctx context.Context, c *pgconn.PgConn) error {
		return exec(ctx, c, "SET default_transaction_read_only = on")
	})
	return conn
}

// Walsender returns a copy of conn for a connection in replication mode.
func Walsender(conn *pgconn.Config) *pgconn.Config {
	conn = Ordinary(conn)
	conn.RuntimeParams["replication"] = "database"
	return conn
}

// Streaming returns a copy of conn for the connection of a Stream.
func Streaming(conn *pgconn.Config) *pgconn.Config {
	conn = Walsender(conn)
	maps.Copy(conn.RuntimeParams, streamSettings())
	conn.AfterConnect = afterConnect(turnOffTimeouts, setMoney)
	withSockets(conn)
	return conn
}

// afterConnect returns an AfterConnect that runs the steps on a server that reports its version, as Postgres does.
func afterConnect(steps ...pgconn.AfterConnectFunc) pgconn.AfterConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if conn.ParameterStatus("server_version") == "" {
			return nil
		}
		for _, step := range steps {
			if err := step(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	}
}

func exec(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	_, err := conn.Exec(ctx, sql).ReadAll()
	return err
}

// laterTimeouts are the timeouts that not every version has. Postgres rejects a startup parameter that it does not
// know.
//
//nolint:gochecknoglobals // a table
var laterTimeouts = []laterTimeout{
	{14, "idle_session_timeout"},
	{17, "transaction_timeout"}, // counts for a WAL sender that decodes a transaction, too
}

type laterTimeout struct {
	since int // major version
	name  string
}

// turnOffTimeouts turns laterTimeouts off. It returns errIgnored if the session lacks the startup parameters: in the same message,
// it reads one of which no other session has this value by default.
func turnOffTimeouts(ctx context.Context, conn *pgconn.PgConn) error {
	version := conn.ParameterStatus("server_version")
	major, _ := strconv.Atoi(version[:len(version)-len(strings.TrimLeft(version, "0123456789"))])
	var sql strings.Builder
	for _, timeout := range laterTimeouts {
		if major >= timeout.since {
			fmt.Fprintf(&sql, "SET %s = 0;", timeout.name)
		}
	}
	sql.WriteString("SELECT pg_catalog.current_setting('row_security')")
	results, err := conn.Exec(ctx, sql.String()).ReadAll()
	if err != nil {
		return err
	}
	if last := results[len(results)-1].Rows; len(last) != 1 || string(last[0][0]) != everySession()["row_security"] {
		return errIgnored
	}
	return nil
}

var errMoney = fmt.Errorf("%w: the role has a lc_monetary of its own, and its currency or that of the database does not have 2 decimal places, so amounts of type money would be wrong: ALTER ROLE … RESET lc_monetary", ErrConfig)

// setMoney makes Postgres print money as the locale C does. The currency of lc_monetary also decides how many decimal
// places the stored number has: C has 2. If lc_monetary has another number, such as 0 for yen, setMoney does not change
// it, because the amounts would be wrong. A role must not have such an lc_monetary of its own: the writers' amounts have
// the decimal places of the database. If the role has another one, setMoney looks at that of the database, too.
func setMoney(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, `
		WITH money AS (
			SELECT source IN ('user', 'database user') AS own, `+hasTwoPlaces+` AS two
			FROM pg_catalog.pg_settings WHERE name = 'lc_monetary')
		SELECT own, two, CASE WHEN two AND NOT own THEN pg_catalog.set_config('lc_monetary', 'C', false) END FROM money`).ReadAll()
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	own, isTwo := string(row[0]) == "t", string(row[1]) == "t"
	if !own {
		return nil
	}
	if isTwo {
		isTwo, err = isTwoInDatabase(ctx, conn)
	}
	switch {
	case err != nil:
		return err
	case !isTwo:
		return errMoney
	}
	return exec(ctx, conn, "SET lc_monetary = 'C'")
}

// hasTwoPlaces is the condition that the currency of lc_monetary has 2 decimal places.
const hasTwoPlaces = "pg_catalog.cash_send(1::pg_catalog.money) = pg_catalog.int8send(100)"

// isTwoInDatabase reports whether the currency that sessions of other roles have in the database has 2 decimal places.
// The setting of the server is hidden by that of the role; the locale of the database stands for it.
func isTwoInDatabase(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	_, err := conn.Exec(ctx, `
		SELECT pg_catalog.set_config('lc_monetary', COALESCE(
			(SELECT pg_catalog.substr(setting, 13) FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS setting
				WHERE s.setrole = 0 AND s.setdatabase IN (0, d.oid) AND setting LIKE 'lc\_monetary=%' ORDER BY s.setdatabase DESC LIMIT 1),
			d.datcollate), false)
		FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()`).ReadAll()
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == "22023" { // it is no value for lc_monetary, so the server has another
		return true, nil
	}
	if err != nil {
		return false, err
	}
	results, err := conn.Exec(ctx, "SELECT "+hasTwoPlaces).ReadAll()
	return err == nil && string(results[0].Rows[0][0]) == "t", err
}
