package replication

import (
	"cmp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Config configures a Stream.
type Config struct {
	// Conn has the connection parameters, and must come from pgconn's or pgx's
	// ParseConfig. Open copies it. In the copy it sets replication=database, and the
	// session settings that the text of values depends on.
	Conn *pgconn.Config

	// Publication and Slot must exist.
	Publication, Slot string

	// MessagePrefix is the prefix of the logical messages that the relay itself writes. Run returns
	// those that are transactional and have at most [MaxOwnMessage] bytes. Postgres sends the
	// messages of all roles; Run drops the others as they arrive, whatever their size. Empty: none.
	MessagePrefix string

	// ReservedPrefix is the prefix of messages that never have rows. Run drops these messages, unless it is
	// MessagePrefix too. Empty: none.
	ReservedPrefix string

	// Messages are the prefixes of logical messages that have rows. Run returns these messages,
	// whatever role wrote them. The publication then needs no table. [AnyPrefix] means all
	// prefixes.
	Messages []string

	// Lease is the most that wal_sender_timeout of the session may be: Open lowers it, and a timeout that
	// is off counts as longer. Postgres releases the slot when it has heard nothing from the Stream for so
	// long. A timeout of less than a second is raised to one. Zero leaves wal_sender_timeout as it is.
	Lease time.Duration

	// StatusInterval is the time between two status updates. The maximum is a sixth of the
	// server's wal_sender_timeout. Zero means 1 s.
	StatusInterval time.Duration

	// MaxMessageBytes limits the size of a message, and so the memory of a Stream, which
	// has one message of more than 256 KiB in memory at a time. A larger message ends the
	// session with ErrRow before its body is received. Zero means 64 MiB.
	MaxMessageBytes int
}

// WithDefaults returns cfg with the defaults in place of zero values.
func (cfg Config) WithDefaults() Config {
	cfg.StatusInterval = cmp.Or(cfg.StatusInterval, time.Second)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, 64<<20)
	return cfg
}

// AnyPrefix in [Config.Messages] means all prefixes.
const AnyPrefix = "*"
