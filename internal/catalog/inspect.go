package catalog

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A State is what the server's catalogs say about a publication and a slot.
type State struct {
	ServerVersion int    // 150018 is 15.18
	SystemID      string // of the cluster, as System.ID
	Database      string // the connection's
	InRecovery    bool   // a standby
	WALLevel      string
	Encoding      string // of the database

	ReadAt time.Time     // by our clock
	WALEnd pglogrepl.LSN // of the log when the reading began; on a standby, of what is replayed

	MaxSlotWALKeepSize int64         // bytes of log a slot may hold; -1: no limit
	IdleSlotTimeout    time.Duration // after which an inactive slot is invalidated, from 18 on; 0: never

	PublicationName, SlotName string           // what was looked for
	Publication               *Publication     // nil: missing
	Slot                      *Slot            // nil: missing
	Oldest                    *OpenTransaction // of the cluster; nil: nobody is writing

	// Messages says that rows come as logical messages, which every publication lets pass: a
	// publication of no tables is then none that delivers nothing. The catalog does not know;
	// who has read it says so.
	Messages bool
}

// A Publication is a publication of the connection's database.
type Publication struct {
	oid uint32
	// version changes with every ALTER PUBLICATION that sets options: the id of the
	// transaction that did. Adding and dropping tables does not count.
	version uint32

	Name                             string
	Insert, Update, Delete, Truncate bool     // what it publishes
	ViaRoot                          bool     // rows of a partition come as rows of the root
	AllTables                        bool     // FOR ALL TABLES
	schemas                          bool     // FOR TABLES IN SCHEMA, among others
	members                          []member // tables that it names, not those of ALL TABLES and TABLES IN SCHEMA
	Tables                           []Table  // as they will be named in the stream: roots or partitions
}

// A member is a table that was added to a publication by its name.
type member struct {
	oid          uint32 // of the membership: another one when the table is added again
	table        uint32 // its OID
	schema, name string // of the table
}

// A Table is a table of a publication.
type Table struct {
	OID          uint32
	Schema, Name string
	partition    bool     // of another table
	Partitioned  bool     // into others
	Columns      []Column // those that are published, in the order they are sent
	RowFilter    string   // a condition: rows that do not meet it are not sent; empty: none
}

// A Column is a published column.
type Column struct {
	Name         string
	TypeOID      uint32 // of a domain: its own
	TypeModifier int32  // pg_attribute.atttypmod; -1: none
	TypeName     string // as format_type prints it: numeric(10,2)
	notNull      bool
}

// A Slot is a replication slot. Slots belong to the cluster, not to a database.
type Slot struct {
	Name     string
	Plugin   string // empty: a physical slot
	Database string

	Active    bool
	ActivePID int32 // of its walsender; 0: none

	RestartLSN        pglogrepl.LSN // log is kept from here on; 0: none
	ConfirmedFlushLSN pglogrepl.LSN // what is behind it will be sent; 0: the slot is being made
	WALStatus         string        // reserved, extended, unreserved, lost; empty: no log is kept
	SafeWALSize       *int64        // bytes that may be written before log it needs is removed, may be negative; nil: no limit
	// InvalidationReason says why the slot is lost, in the server's words. It is known from
	// Postgres 17 on.
	InvalidationReason string
	InactiveSince      time.Time // the same; zero: active

	Temporary, TwoPhase bool
	Failover            bool // standbys keep a copy; from 17 on
	synced              bool // it is such a copy
}

// retained returns how many bytes of log the server keeps for the slot when its log ends at
// end.
func (s *Slot) retained(end pglogrepl.LSN) int64 {
	if s.RestartLSN == 0 || end < s.RestartLSN {
		return 0
	}
	return int64(end - s.RestartLSN)
}

// Inspect reads the catalog over an ordinary connection of its own. A publication or slot
// that does not exist is no error. Neither REPLICATION nor SELECT on the tables is needed.
func Inspect(ctx context.Context, conn *pgconn.Config, publication, slot string) (*State, error) {
	if err := replication.CheckNames(publication, slot); err != nil {
		return nil, err
	}
	c, err := replication.Connect(ctx, replication.Ordinary(conn))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	return inspect(ctx, c, publication, slot)
}

// inspect is Inspect over conn. Of a server that is too old to ask, only what Verify needs
// to say so is returned.
func inspect(ctx context.Context, conn executor, publication, slot string) (*State, error) {
	c, err := readServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	c.PublicationName, c.SlotName = publication, slot
	if c.ServerVersion < oldestServer {
		return c, nil
	}
	if c.Publication, err = readPublication(ctx, conn, c.ServerVersion, publication); err != nil {
		return nil, err
	}
	if c.Slot, err = readSlot(ctx, conn, c.ServerVersion, slot); err != nil {
		return nil, err
	}
	if c.Oldest, err = readOldest(ctx, conn); err != nil {
		return nil, err
	}
	return c, nil
}
