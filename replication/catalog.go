package replication

import (
	"context"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Catalog is what the server's catalogs say about a publication and a slot.
type Catalog struct {
	ServerVersion int    // 150018 is 15.18
	SystemID      string // of the cluster, as System.ID
	Database      string // the connection's
	InRecovery    bool   // a standby
	WALLevel      string
	Encoding      string // of the database

	PublicationName, SlotName string       // what was looked for
	Publication               *Publication // nil: missing
	Slot                      *Slot        // nil: missing
}

// A Publication is a publication of the connection's database.
type Publication struct {
	Name                             string
	Insert, Update, Delete, Truncate bool    // what it publishes
	ViaRoot                          bool    // rows of a partition come as rows of the root
	AllTables                        bool    // FOR ALL TABLES
	Tables                           []Table // as they will be named in the stream: roots or partitions
}

// A Table is a table of a publication.
type Table struct {
	OID          uint32
	Schema, Name string
	Columns      []Column // those that are published, in the order they are sent
	HasRowFilter bool
}

// A Column is a published column.
type Column struct {
	Name     string
	TypeOID  uint32 // of a domain: its own
	TypeName string // as format_type prints it: numeric(10,2)
	NotNull  bool
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
	// InvalidationReason says why the slot is lost, in the server's words. It is known from
	// Postgres 17 on.
	InvalidationReason string

	Temporary, TwoPhase bool
	Synced              bool // a copy that a standby keeps of its primary's slot
}

// Inspect reads the catalog over an ordinary connection of its own. A publication or slot
// that does not exist is no error. Neither REPLICATION nor SELECT on the tables is needed.
func Inspect(ctx context.Context, conn *pgconn.Config, publication, slot string) (*Catalog, error) {
	if err := checkNames(publication, slot); err != nil {
		return nil, err
	}
	c, err := connect(ctx, ordinary(conn))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	return inspect(ctx, c, publication, slot)
}

// inspect is Inspect over conn. Of a server that is too old to ask, only what Verify needs
// to say so is returned.
func inspect(ctx context.Context, conn *pgconn.PgConn, publication, slot string) (*Catalog, error) {
	c, err := readServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	c.PublicationName, c.SlotName = publication, slot
	if c.ServerVersion < oldestServer {
		return c, nil
	}
	if c.Publication, err = readPublication(ctx, conn, publication); err != nil {
		return nil, err
	}
	if c.Publication != nil {
		if c.Publication.Tables, err = readTables(ctx, conn, c.ServerVersion, publication); err != nil {
			return nil, err
		}
	}
	if c.Slot, err = readSlot(ctx, conn, c.ServerVersion, slot); err != nil {
		return nil, err
	}
	return c, nil
}
