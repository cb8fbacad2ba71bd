package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Connect opens a connection. cfg comes from [Ordinary], [Reading], [Walsender] or
// [Streaming]. The error wraps one of the errors of this package if its cause is known.
func Connect(ctx context.Context, cfg *pgconn.Config) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, explainAddress(cfg, wrap(ctx, doingConnect(cfg), shorten(err), connecting))
	}
	return conn, nil
}

// ExplainConnect returns what [Connect] returns for the error of a connection that the driver has opened. It returns any other error unchanged,
// and that of a connection that was given up, or that no error of this package is the cause of, without settings.
func ExplainConnect(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	refusal, refused := errors.AsType[*pgconn.PgError](err)
	if errors.Is(err, context.Canceled) || refused && conditionOf(refusal, connecting).is == nil {
		return HideSettings(err)
	}
	return explainAddress(failed.Config, wrapCause(doingConnect(failed.Config), shorten(err), connecting))
}

func doingConnect(cfg *pgconn.Config) string {
	return fmt.Sprintf("connect as %q to database %q", cfg.User, cfg.Database)
}

// shorten returns the error of the driver without what doingConnect says, and without secrets.
func shorten(err error) error {
	err = HideSettings(err)
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return connectError{e.Unwrap()}
	}
	return err
}

// explainAddress adds to the error of a connection what is at the address, if that explains it.
func explainAddress(cfg *pgconn.Config, err error) error {
	return explainPooler(cfg, explainHBA(cfg, err))
}

// A connectError is the error of several connection attempts without repeated lines. With
// sslmode=prefer, pgconn looks a host up and tries it with TLS and without.
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

// Disconnect closes conn, even if ctx has ended. It waits at most 5 s for the server to close its
// side.
func Disconnect(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// SameServer returns a copy of conn for an ordinary connection to the server at addr, to which another connection of conn
// leads. If conn names several servers, the connection tries no other. It ignores target_session_attrs: the server met
// the condition when the other connection was opened, and a promotion may have changed that.
func SameServer(conn *pgconn.Config, addr net.Addr) *pgconn.Config {
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

// Replication commands have no parameters, so names are part of the command. A slot name has
// no character that needs quoting. A publication name may have any character but NUL.
var slotName = regexp.MustCompile(`^[a-z0-9_]+$`)

// CheckNames returns an error that wraps ErrConfig if a publication or a slot cannot have such
// a name.
func CheckNames(publication, slot string) error {
	if len(slot) > 63 || !slotName.MatchString(slot) {
		return fmt.Errorf("%w: slot name %q: it must have 1 to 63 characters of a-z, 0-9 and _", ErrConfig, slot)
	}
	// Postgres truncates a longer name, and would use another publication.
	if len(publication) == 0 || len(publication) > 63 || strings.Contains(publication, "\x00") {
		return fmt.Errorf("%w: publication name %q: it must have 1 to 63 bytes and no NUL", ErrConfig, publication)
	}
	return nil
}

// QuoteIdent returns name as a quoted SQL identifier.
func QuoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteLiteral returns value as a string literal for a replication command, whose scanner has
// no backslash escapes.
func QuoteLiteral(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
