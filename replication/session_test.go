package replication

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// unsuitable are settings that a role, a database or a server can have, and under which a session would read
// something else, or not long enough. The number is the first version that knows the setting.
var unsuitable = map[string]struct {
	value string
	since int
}{
	"transaction_timeout":                 {"200ms", 17},
	"idle_session_timeout":                {"5s", 14}, // counts until the session turns it off
	"idle_in_transaction_session_timeout": {"200ms", 14},
	"statement_timeout":                   {"200ms", 14},
	"lock_timeout":                        {"200ms", 14},
	"tcp_user_timeout":                    {"200ms", 14},
	"client_encoding":                     {"LATIN1", 14},
	"client_min_messages":                 {"error", 14},
	"DateStyle":                           {"SQL, DMY", 14},
	"IntervalStyle":                       {"iso_8601", 14},
	"TimeZone":                            {"Asia/Tokyo", 14},
	"bytea_output":                        {"escape", 14},
	"extra_float_digits":                  {"-15", 14},
	"row_security":                        {"on", 14},
	"search_path":                         {"evil, pg_catalog", 14},
	"quote_all_identifiers":               {"on", 14},
	"standard_conforming_strings":         {"off", 14},
	"default_transaction_read_only":       {"on", 14},
	"default_transaction_isolation":       {"serializable", 14},
	"default_transaction_deferrable":      {"on", 14},
	"lc_messages":                         {"C.UTF-8", 14},
	"session_replication_role":            {"replica", 14},
	"xmlbinary":                           {"hex", 14},
	"xmloption":                           {"document", 14},
	"array_nulls":                         {"off", 14},
}

// withUnsuitable gives a new role every unsuitable setting, and returns the connection of that role.
func withUnsuitable(t *testing.T, db *pgtest.DB, major int) *pgconn.Config {
	t.Helper()
	conn := db.Config(t)
	conn.User = db.Role(t, "ALTER ROLE $ROLE REPLICATION; GRANT CREATE ON DATABASE $ROLE TO $ROLE")
	for name, setting := range unsuitable {
		if major >= setting.since {
			db.Exec(t, fmt.Sprintf("ALTER ROLE %s SET %s = %s", db.Name, name, QuoteLiteral(setting.value)))
		}
	}
	return conn
}

// Every connection sets what it depends on, whatever a role sets, on every version.
func TestSettingsOfARole(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		conn := withUnsuitable(t, pgtest.DatabaseOn(t, srv), srv.Install().Major)
		every := map[string]string{
			"transaction_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
			"statement_timeout": "0", "lock_timeout": "0", "tcp_user_timeout": "0",
			"client_encoding": "UTF8", "client_min_messages": "warning", "row_security": "off",
			"standard_conforming_strings": "on", "quote_all_identifiers": "off",
			"default_transaction_read_only": "off", "default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
			"extra_float_digits": "3",
		}
		text := with(every, "DateStyle", "ISO, MDY", "IntervalStyle", "postgres", "TimeZone", "UTC", "bytea_output", "hex",
			"lc_monetary", "C")
		for name, tc := range map[string]struct {
			conn *pgconn.Config
			want map[string]string
		}{
			"ordinary":             {Ordinary(conn), every},
			"ordinary of ordinary": {Ordinary(Ordinary(conn)), every},
			"walsender":            {Walsender(conn), every},
			"read-only":            {ReadOnly(Ordinary(conn)), with(every, "default_transaction_read_only", "on")},
			"reading":              {Reading(conn), text},
			"streaming":            {Streaming(conn), with(text, "search_path", "pg_catalog")},
		} {
			got := settingsOf(t, tc.conn)
			for _, setting := range slices.Sorted(maps.Keys(tc.want)) {
				if value, known := got[setting]; known && value != tc.want[setting] {
					t.Errorf("%s: %s is %q, want %q", name, setting, value, tc.want[setting])
				}
			}
		}
	})
}

func with(settings map[string]string, pairs ...string) map[string]string {
	settings = maps.Clone(settings)
	for pair := range slices.Chunk(pairs, 2) {
		settings[pair[0]] = pair[1]
	}
	return settings
}

// settingsOf connects and returns all settings of the session.
func settingsOf(t *testing.T, cfg *pgconn.Config) map[string]string {
	t.Helper()
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer Disconnect(t.Context(), c)
	results, err := c.Exec(t.Context(), "SELECT name, setting FROM pg_catalog.pg_settings").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, row := range results[0].Rows {
		got[string(row[0])] = string(row[1])
	}
	return got
}

// A WAL sender decodes a large transaction, which takes longer than the timeouts of the role.
func TestTimeoutsOfARole(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		s := newSource(t, srv)
		s.cfg.Conn = withUnsuitable(t, s.DB, srv.Install().Major)
		s.insert(t, 1, 100_000)
		r := s.start(t, 0, false)
		for r.rows.Load() < 100_000 { // before 15, the stream also has transactions of other tables
			select {
			case <-r.commits:
			case err := <-r.ended:
				t.Fatal(err)
			}
		}
	})
}

// With target_session_attrs=read-write, a read-only connection does not take the primary server for a standby.
func TestReadOnlyOnAPrimary(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Config(t)
	conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if got := settingsOf(t, ReadOnly(Ordinary(conn)))["default_transaction_read_only"]; got != "on" {
		t.Errorf("default_transaction_read_only is %q", got)
	}
}

// A timeout that ends the session before it is turned off is named, and how to change it.
func TestTimeoutBeforeTheSession(t *testing.T) {
	for _, code := range []string{"25P03", "25P04", "57P05"} {
		err := wrap(t.Context(), "connect", &pgconn.PgError{Code: code, Message: "terminating connection due to a timeout"}, connecting)
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "raise it for the role, the database or the server") {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// Money has the text of the locale C. A locale whose currency has another number of decimal places stays, because its
// amounts are stored with that number; a role must not have such a locale of its own.
func TestMoney(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Locales: pgtest.Locales(t, "pt_BR.UTF-8", "nl_NL.UTF-8", "ja_JP.UTF-8")})
	for locale, want := range map[string]string{"pt_BR.UTF-8": "$1,234.50", "nl_NL.UTF-8": "$1,234.50", "ja_JP.UTF-8": "￥1,235", "C": "$1,234.50"} {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET lc_monetary = '%s'", db.Name, locale))
		for kind, cfg := range map[string]*pgconn.Config{"reading": Reading(db.Config(t)), "streaming": Streaming(db.Config(t))} {
			c, err := Connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			results, err := c.Exec(t.Context(), "SELECT 1234.5::numeric::money").ReadAll()
			Disconnect(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(results[0].Rows[0][0]); got != want {
				t.Errorf("%s, %s: %q, want %q", locale, kind, got, want)
			}
		}
	}
	for name, tc := range map[string]struct {
		database, role string
		ok             bool
	}{
		"the role's own has no decimal places":    {"", "ALTER ROLE $ROLE SET lc_monetary = 'ja_JP.UTF-8'", false},
		"the database's has none, the role's two": {"ALTER DATABASE $DB SET lc_monetary = 'ja_JP.UTF-8'", "ALTER ROLE $ROLE SET lc_monetary = 'pt_BR.UTF-8'", false},
		"in this database only":                   {"ALTER DATABASE $DB SET lc_monetary = 'ja_JP.UTF-8'", "ALTER ROLE $ROLE IN DATABASE $ROLE SET lc_monetary = 'C'", false},
		"both have two":                           {"ALTER DATABASE $DB SET lc_monetary = 'nl_NL.UTF-8'", "ALTER ROLE $ROLE SET lc_monetary = 'pt_BR.UTF-8'", true},
		"only the role has one, with two":         {"", "ALTER ROLE $ROLE SET lc_monetary = 'pt_BR.UTF-8'", true},
	} {
		db := pgtest.DatabaseOn(t, srv)
		if tc.database != "" {
			db.Exec(t, strings.ReplaceAll(tc.database, "$DB", db.Name))
		}
		conn := db.Config(t)
		conn.User = db.Role(t, tc.role, "ALTER ROLE $ROLE REPLICATION")
		for _, cfg := range []*pgconn.Config{Reading(conn), Streaming(conn)} {
			c, err := Connect(t.Context(), cfg)
			if err == nil {
				Disconnect(t.Context(), c)
			}
			if (err == nil) != tc.ok || !tc.ok && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "RESET lc_monetary")) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if tc.ok {
			if got := settingsOf(t, Reading(conn))["lc_monetary"]; got != "C" {
				t.Errorf("%s: lc_monetary is %s", name, got)
			}
		}
	}
}
