package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Connect opens a connection of any kind.
func Connect(ctx context.Context, cfg *pgconn.Config) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	err = HideSettings(err)
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = connectError{e.Unwrap()} // the rest of its text is ours
	}
	if err != nil {
		return nil, wrap(ctx, fmt.Sprintf("connect as %q to database %q", cfg.User, cfg.Database), err, connecting)
	}
	return conn, nil
}

// A connectError is an error of a connection without the lines that say the same as one before: with
// sslmode=prefer a host is looked up and tried with TLS and without.
type connectError struct{ error }

// Error implements error.
func (e connectError) Error() string {
	var kept []string
	for line := range strings.Lines(e.error.Error()) {
		line = strings.TrimSpace(line)
		if !slices.ContainsFunc(kept, func(before string) bool { return strings.HasSuffix(before, line) }) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// Unwrap returns the error of all attempts.
func (e connectError) Unwrap() error { return e.error }

// Disconnect closes conn, also after ctx has ended, and waits 5 s at most for the server to do so.
func Disconnect(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

const applicationName = "outbox-cdc"

// sessionSettings are what the text of values depends on, and what must not be lost:
// warnings, one of which says that rows are skipped (errorOfNotice). row_security=off is
// the manual's advice for a role that does not trust every table's owner.
// https://www.postgresql.org/docs/current/logical-replication-security.html
func sessionSettings() map[string]string {
	return map[string]string{
		"client_encoding":     "UTF8",
		"client_min_messages": "warning",
		"datestyle":           "ISO",
		"intervalstyle":       "postgres",
		"timezone":            "UTC",
		"bytea_output":        "hex",
		"extra_float_digits":  "3",
		"row_security":        "off",
	}
}

// Walsender returns conn changed for a connection in replication mode.
func Walsender(conn *pgconn.Config) *pgconn.Config {
	conn = Ordinary(conn)
	conn.RuntimeParams["replication"] = "database"
	return conn
}

// Ordinary returns conn changed for a connection that runs statements.
func Ordinary(conn *pgconn.Config) *pgconn.Config {
	conn = conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = make(map[string]string)
	}
	conn.RuntimeParams["application_name"] = cmp.Or(conn.RuntimeParams["application_name"], applicationName)
	conn.RuntimeParams["client_encoding"] = "UTF8"
	return conn
}

// Reading returns conn changed for a connection that reads values as the stream prints them.
func Reading(conn *pgconn.Config) *pgconn.Config {
	conn = Ordinary(conn)
	maps.Copy(conn.RuntimeParams, sessionSettings())
	return conn
}

// Streaming returns conn changed for the connection of a Stream.
func Streaming(conn *pgconn.Config) *pgconn.Config {
	settings := Walsender(conn)
	maps.Copy(settings.RuntimeParams, sessionSettings())
	withSockets(settings)
	return settings
}

// sameServer returns conn changed for an ordinary connection to the server at addr: where
// conn names several, the others are not tried. What target_session_attrs demands was so when the
// stream began, and may have changed with a promotion.
func sameServer(conn *pgconn.Config, addr net.Addr) *pgconn.Config {
	conn = Ordinary(conn)
	conn.ValidateConnect = nil
	if len(conn.Fallbacks) > 0 {
		dial := conn.DialFunc
		conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != addr.String() {
				return nil, net.ErrClosed
			}
			return dial(ctx, network, address)
		}
	}
	return conn
}

// Replication commands take no parameters: names are part of their text. A slot's name has
// no letter that would need quoting; a publication's may have any but NUL.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// CheckNames returns an error of ErrConfig for a name that no publication or slot can have.
func CheckNames(publication, slot string) error {
	if !slotName.MatchString(slot) {
		return fmt.Errorf("%w: slot name %q: it must be 1 to 63 of a-z, 0-9 and _", ErrConfig, slot)
	}
	// Postgres would cut a longer name off, and then look for another publication.
	if len(publication) == 0 || len(publication) > 63 || strings.Contains(publication, "\x00") {
		return fmt.Errorf("%w: publication name %q: it must be 1 to 63 bytes without NUL", ErrConfig, publication)
	}
	return nil
}

// QuoteIdent quotes a name as an SQL identifier.
func QuoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteLiteral quotes a value for a replication command: its scanner knows no backslash
// escapes.
func QuoteLiteral(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
