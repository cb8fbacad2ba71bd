package replication

import (
	"cmp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Config says which stream Open opens.
type Config struct {
	// Conn says how to reach the server; it must come from pgconn's or pgx's ParseConfig.
	// It is copied. replication=database and the session settings that decide how values
	// are printed are set in the copy.
	Conn *pgconn.Config

	// Publication and Slot must exist.
	Publication, Slot string

	// MessagePrefix, if not empty, asks for the logical messages that the relay writes itself: those
	// with this prefix, inside a transaction, of at most [MaxOwnMessage] bytes. The server sends
	// everybody's; the others are thrown away as they arrive, whatever their size.
	MessagePrefix string

	// ReservedPrefixes are prefixes whose messages never hold rows. All messages with one of them are
	// thrown away, except those that MessagePrefix asks for.
	ReservedPrefixes []string

	// Messages are the prefixes of logical messages that hold rows. Those with one of them come
	// too, whoever wrote them. The publication may then have no table. [AnyPrefix] stands for
	// all of them.
	Messages []string

	// StatusInterval is how often the confirmed position is reported. It is cut to a sixth
	// of the server's wal_sender_timeout. Zero means 1 s.
	StatusInterval time.Duration

	// MaxMessageBytes limits a single message, and with it the memory of a Stream: it has
	// one of more than 256 KiB in memory at a time. A larger message ends the stream with
	// ErrRow before its body is received. Zero means 64 MiB.
	MaxMessageBytes int
}

// WithDefaults returns cfg with the values that zero ones mean.
func (cfg Config) WithDefaults() Config {
	cfg.StatusInterval = cmp.Or(cfg.StatusInterval, time.Second)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, 64<<20)
	return cfg
}

// AnyPrefix is every prefix, in [Config.Messages].
const AnyPrefix = "*"
