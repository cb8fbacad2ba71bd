package replication

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Config says which stream Open opens.
type Config struct {
	// Conn says how to reach the server; it must come from pgconn's or pgx's ParseConfig.
	// It is copied. replication=database and the session settings that decide how values
	// are printed are set in the copy.
	Conn *pgconn.Config

	// Publication and Slot must exist, see [Setup].
	Publication, Slot string

	// MessagePrefix, if not empty, asks for logical messages too: those with this prefix, see
	// [Observer.EmitSnapshot]. The server sends everybody's; the others are thrown away as they
	// arrive, whatever their size.
	MessagePrefix string

	// Messages are the prefixes of logical messages that hold rows. Those with one of them come
	// too, whoever wrote them. The publication may then have no table. [AnyPrefix] stands for
	// all of them.
	Messages []string

	// StatusInterval is how often the confirmed position is reported. It is cut to a third
	// of the server's wal_sender_timeout. Zero means 1 s.
	StatusInterval time.Duration

	// ShutdownGrace is how long a server that is stopping is kept waiting for what is not
	// confirmed yet. Zero means 5 s.
	ShutdownGrace time.Duration

	// MaxMessageBytes limits a single message, and with it the memory of a Stream: it has
	// one of more than 256 KiB in memory at a time. A larger message ends the stream with
	// ErrRow before its body is received. Zero means 64 MiB.
	MaxMessageBytes int
}

func (cfg Config) withDefaults() Config {
	cfg.StatusInterval = cmp.Or(cfg.StatusInterval, time.Second)
	cfg.ShutdownGrace = cmp.Or(cfg.ShutdownGrace, 5*time.Second)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, 64<<20)
	return cfg
}

// AnyPrefix is every prefix, in [Config.Messages].
const AnyPrefix = "*"

// prefixes returns what the messages that are asked for begin with: prefixes, each with the NUL
// that ends it in the stream.
func (cfg Config) prefixes() [][]byte {
	var all [][]byte
	if cfg.MessagePrefix != "" {
		all = append(all, []byte(cfg.MessagePrefix+"\x00"))
	}
	for _, prefix := range cfg.Messages {
		if prefix == AnyPrefix {
			return [][]byte{{}} // with which everything begins
		}
		all = append(all, []byte(prefix+"\x00"))
	}
	return all
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

// walsender returns conn changed for a connection in replication mode.
func walsender(conn *pgconn.Config) *pgconn.Config {
	conn = ordinary(conn)
	conn.RuntimeParams["replication"] = "database"
	return conn
}

// ordinary returns conn changed for a connection to look at the catalog.
func ordinary(conn *pgconn.Config) *pgconn.Config {
	conn = conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = make(map[string]string)
	}
	conn.RuntimeParams["application_name"] = cmp.Or(conn.RuntimeParams["application_name"], applicationName)
	conn.RuntimeParams["client_encoding"] = "UTF8"
	return conn
}

// reading returns conn changed for a connection that reads values as the stream prints them.
func reading(conn *pgconn.Config) *pgconn.Config {
	conn = ordinary(conn)
	maps.Copy(conn.RuntimeParams, sessionSettings())
	return conn
}

// Replication commands take no parameters: names are part of their text. A slot's name has
// no letter that would need quoting; a publication's may have any but NUL.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func checkNames(publication, slot string) error {
	if !slotName.MatchString(slot) {
		return fmt.Errorf("%w: slot name %q: it must be 1 to 63 of a-z, 0-9 and _", ErrConfig, slot)
	}
	// Postgres would cut a longer name off, and then look for another publication.
	if len(publication) == 0 || len(publication) > 63 || strings.Contains(publication, "\x00") {
		return fmt.Errorf("%w: publication name %q: it must be 1 to 63 bytes without NUL", ErrConfig, publication)
	}
	return nil
}

// quoteIdent quotes a name as an SQL identifier.
func quoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteLiteral quotes a value for a replication command: its scanner knows no backslash
// escapes.
func quoteLiteral(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
