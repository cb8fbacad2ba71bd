package replication

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A pooler is a kind of connection pooler. Poolers give a server session to several clients, and a
// replication connection cannot be shared.
type pooler struct {
	name    string
	address *regexp.Regexp // host:port of its addresses; nil: any
	says    []string       // parts of its own errors, which Postgres does not have
	direct  string         // how to find the address of Postgres
}

// poolers are the known ones. Those with addresses of their own come first.
//
//nolint:gochecknoglobals // a table
var poolers = []pooler{
	{
		"Neon's pooler", regexp.MustCompile(`^[^.]+-pooler\..*neon\.(tech|build):`), nil,
		"use the host name without -pooler",
	},
	{
		"Supavisor, Supabase's pooler", regexp.MustCompile(`\.pooler\.supabase\.com:`),
		[]string{"Tenant or user not found"},
		"use the direct connection, db.<project>.supabase.co:5432, which needs IPv6 or the IPv4 add-on",
	},
	{
		"RDS Proxy", regexp.MustCompile(`\.proxy-[^.]+\.[^.]+\.rds\.amazonaws\.com(\.cn)?:`),
		[]string{"RDS Proxy currently doesn't support"},
		"use the endpoint of the instance, or the writer endpoint of the cluster",
	},
	{
		"Crunchy Bridge's PgBouncer", regexp.MustCompile(`\.postgresbridge\.com:5431$`), nil,
		"use port 5432",
	},
	{
		"Azure's PgBouncer", regexp.MustCompile(`\.postgres\.database\.azure\.com:6432$`), nil,
		"use port 5432",
	},
	{
		"DigitalOcean's connection pool", regexp.MustCompile(`\.db\.ondigitalocean\.com:25061$`), nil,
		"use the connection details of the cluster, not of the pool",
	},
	{
		"PgBouncer", regexp.MustCompile(`:6432$`),
		[]string{"unsupported startup parameter", "bouncer config error"},
		"use the host and port of Postgres, usually port 5432",
	},
}

const remedyPooled = "this is not a replication connection: a pooler accepted it and ignored the parameter replication; source.dsn must name Postgres itself, not a pooler"

// poolerAt returns the name of the pooler that the address belongs to, and how to find the address of Postgres. Both are
// empty if the address is not known to be a pooler's.
func poolerAt(host string, port uint16) (name, direct string) {
	address := net.JoinHostPort(host, strconv.Itoa(int(port)))
	for _, p := range poolers {
		if p.address.MatchString(address) {
			return p.name, p.direct
		}
	}
	return "", ""
}

// explainPooler adds to err, with which cfg could not connect, that the address is a pooler's. Its errors, such as a wrong
// password, rarely say so.
func explainPooler(cfg *pgconn.Config, err error) error {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	name, direct := poolerAt(cfg.Host, cfg.Port)
	for _, p := range poolers {
		for _, text := range p.says {
			if name == "" && strings.Contains(refusal.Message, text) {
				name, direct = p.name, p.direct
			}
		}
	}
	if name == "" {
		return err
	}
	return fmt.Errorf("%w; %s has answered, and the relay needs Postgres itself: %s (source.dsn)", err, name, direct)
}

// errIgnored: a pooler has ignored the startup parameters. PgBouncer does so with those of ignore_startup_parameters, which its errors
// suggest to set.
var errIgnored = fmt.Errorf("%w: a pooler accepted the connection and ignored its parameters; source.dsn must name Postgres itself, not a pooler", ErrConfig)

// FromPooler reports whether the error shows that source.dsn leads to a pooler: it has rejected or ignored a parameter that every
// session of the relay sets, or it has shared a server session.
func FromPooler(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, errIgnored) || ok && (isStartupRefusal(refusal) || isReplicationCommand(refusal) || isForeignStatement(refusal))
}

// isForeignStatement reports whether a prepared statement exists that the session has not prepared, or no longer exists.
func isForeignStatement(err *pgconn.PgError) bool {
	return err.Code == "42P05" || err.Code == "26000" // duplicate_prepared_statement, invalid_sql_statement_name
}

// isStartupRefusal reports whether a pooler rejects a parameter of the connection.
func isStartupRefusal(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "unsupported startup parameter")
}

// isReplicationCommand reports whether Postgres has read a replication command as SQL. Messages may be translated.
func isReplicationCommand(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, `"IDENTIFY_SYSTEM"`) || strings.Contains(err.Message, `"CREATE_REPLICATION_SLOT"`)
}
