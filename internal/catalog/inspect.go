package catalog

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A State is a publication, a slot and the state of their server, read from the catalogs.
type State struct {
	ServerVersion int    // 150018 is 15.18
	SystemID      string // system identifier of the cluster
	Database      string // of the connection
	InRecovery    bool   // the server is a standby
	WALLevel      string // wal_level
	EffectiveWAL  string // effective_wal_level, from 19 on; otherwise ""
	Encoding      string // of the database

	ReadAt time.Time     // by our clock
	WALEnd pglogrepl.LSN // end of WAL at ReadAt; on a standby, the last replayed position

	MaxSlotWALKeepSize int64         // bytes; -1: no limit
	IdleSlotTimeout    time.Duration // idle_replication_slot_timeout, from 18 on; 0: off

	// StandbySlots are the physical slots in synchronized_standby_slots, from 17 on. Postgres sends rows through a failover slot only after
	// these standbys have them.
	StandbySlots []StandbySlot

	PublicationName, SlotName string           // the names that were looked up
	Publication               *Publication     // nil: missing
	OtherPublications         []string         // of the database, if it is missing
	Outboxes                  []Outbox         // the outbox tables of the configuration, in its order
	Slot                      *Slot            // nil: missing
	Oldest                    *OpenTransaction // oldest one of the cluster that has written; nil: none

	// Messages says that rows are logical messages, which every publication publishes. A publication
	// without tables then delivers rows. The catalog does not have this; the caller of Inspect sets it.
	Messages bool
}

// A StandbySlot is a physical slot in synchronized_standby_slots.
// https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONIZED-STANDBY-SLOTS
type StandbySlot struct {
	Name   string `json:"name"`
	Active bool   `json:"active"` // a standby streams from it
}

// MissingStandbys returns the names in StandbySlots from which no standby streams, if the slot has to wait for them: Postgres sends
// nothing.
func (c *State) MissingStandbys() (names []string) {
	if c.Slot == nil || !c.Slot.Failover {
		return nil
	}
	for _, s := range c.StandbySlots {
		if !s.Active {
			names = append(names, s.Name)
		}
	}
	return names
}

// A Publication is a publication of the connection's database.
type Publication struct {
	oid, owner uint32
	// version changes with every ALTER PUBLICATION that sets options. It is the id of the
	// transaction (xmin). Adding and dropping tables does not change it.
	version uint32

	Name                             string
	Insert, Update, Delete, Truncate bool              // what it publishes
	ViaRoot                          bool              // publish_via_partition_root
	AllTables                        bool              // FOR ALL TABLES
	schemas                          map[string]uint32 // FOR TABLES IN SCHEMA, perhaps with FOR TABLE: OID of the membership by schema
	members                          []member          // tables of FOR TABLE
	excepted                         []member          // tables of FOR ALL TABLES EXCEPT, from 19 on
	Tables                           []Table           // published tables as the stream names them: roots or partitions
}

// A member is a table that was added to a publication by name, or excepted from it.
type member struct {
	oid          uint32 // of the membership; changes when the table is added again
	table        uint32 // OID of the table
	schema, name string // of the table
	columns      string // attribute numbers of its list of columns; empty: all columns
	born         bool   // the transaction that created the table has added it, so it never had a row that was not published
	excepted     bool
}

// A Table is a table of a publication.
type Table struct {
	OID          uint32
	Schema, Name string
	partition    bool           // is a partition of another table
	root         string         // for a partition that was read from a publication: the topmost table above it, written in SQL
	Partitioned  bool           // has partitions
	Columns      []Column       // published columns, in the order of the stream
	Unsent       []UnsentColumn // its other columns
	RowFilter    string         // SQL condition; rows that do not match it are not sent; empty: none
	Republish    string         // statements that publish it without row filter and column list; empty: it has neither
}

// A Column is a published column.
type Column struct {
	Name         string
	TypeOID      uint32 // for a domain: that of the domain
	TypeModifier int32  // pg_attribute.atttypmod; -1: none
	TypeName     string // the result of format_type, such as numeric(10,2)
	notNull      bool
}

// An UnsentColumn is a column of a table that is not in the records of the stream.
type UnsentColumn struct {
	Column
	Generated bool   // otherwise it is not in the publication's column list
	Reason    string // why the stream lacks it, and how to change that
}

// A Slot is a replication slot. Slots belong to the cluster, not to a database.
type Slot struct {
	Name     string
	Plugin   string // empty: a physical slot
	Database string

	Active    bool
	ActivePID int32 // of its WAL sender; 0: none
	Client    Client

	RestartLSN        pglogrepl.LSN // Postgres retains WAL from here on; 0: none
	ConfirmedFlushLSN pglogrepl.LSN // the confirmed position; 0: the slot is being created
	WALStatus         string        // reserved, extended, unreserved, lost; empty: no WAL is retained
	SafeWALSize       *int64        // bytes of WAL that may be written before Postgres may invalidate the slot; may be negative; nil: no limit
	// InvalidationReason is why the slot is invalidated, in Postgres' words, from Postgres 17 on.
	InvalidationReason string
	InactiveSince      time.Time // from Postgres 17 on; zero: active

	Temporary, TwoPhase bool
	Failover            bool // synchronized to standbys, from Postgres 17 on
	Synced              bool // it is the copy on a standby

	// SyncSkipReason is why the last synchronization of the copy was skipped, in Postgres' words. Empty: it was not
	// skipped, or the server has no column slotsync_skip_reason, which Postgres has from 19 on.
	SyncSkipReason string

	Decoding DecodingStat
}

// A Client is what receives the stream of a slot, or the empty Client if nothing does. Every role may see the application name of
// every session; the address is empty if the session belongs to another role.
type Client struct {
	Application, Address string
}

// IsRelay reports whether the client may be a relay that connects with conn.
func (c Client) IsRelay(conn *pgconn.Config) bool {
	return c.Application == "" || c.Application == replication.Ordinary(conn).RuntimeParams["application_name"]
}

// Holder describes what receives the stream of the slot.
func (s *Slot) Holder() string {
	text := fmt.Sprintf("WAL sender %d", s.ActivePID)
	if s.Client.Application != "" {
		text += fmt.Sprintf(", application %q", s.Client.Application)
	}
	if s.Client.Address != "" {
		text += " at " + s.Client.Address
	}
	return text
}

// DecodingStat counts large transactions of a slot, since the statistics of the slot were reset.
// https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-REPLICATION-SLOTS-VIEW
type DecodingStat struct {
	SpilledTransactions, SpilledBytes   int64 // written to disk, because they exceeded logical_decoding_work_mem
	StreamedTransactions, StreamedBytes int64 // sent before they were committed, which a relay does not ask for
}

// retained returns how many bytes of WAL the server retains for the slot if its WAL ends at end.
func (s *Slot) retained(end pglogrepl.LSN) int64 {
	if s.RestartLSN == 0 || end < s.RestartLSN {
		return 0
	}
	return int64(end - s.RestartLSN)
}

// Inspect reads a State over a new ordinary connection. A missing publication or slot is no error.
// The role needs neither REPLICATION nor SELECT on the tables. tables may be nil. Inspect waits for a transaction that locks a
// published table for two thirds of the time until the deadline of ctx, 20 s at most; then it returns a [*LockError].
func Inspect(ctx context.Context, conn *pgconn.Config, publication, slot string, tables *Tables) (*State, error) {
	if err := replication.CheckNames(publication, slot); err != nil {
		return nil, err
	}
	c, err := connect(ctx, replication.Ordinary(conn))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	return inspect(ctx, c, publication, slot, tables)
}

// readTables reads the publication and the outbox tables, again if these have changed meanwhile: otherwise a partition that was
// attached in between would be published and no part of the outbox. A transaction would not help, because Postgres reads the
// tables of a publication as they are at the moment.
func (c *State) readTables(ctx context.Context, conn executor, tables *Tables) error {
	before, err := tables.read(ctx, conn, c.PublicationName)
	for err == nil {
		if c.Publication, err = readPublication(ctx, conn, c.ServerVersion, c.PublicationName); err != nil {
			break
		}
		if c.Outboxes, err = tables.read(ctx, conn, c.PublicationName); reflect.DeepEqual(c.Outboxes, before) {
			break
		}
		before = c.Outboxes
	}
	if err == nil && c.Publication == nil {
		c.OtherPublications, err = query(ctx, conn, pgx.RowTo[string], "read the publications", "SELECT pubname FROM pg_catalog.pg_publication ORDER BY pubname LIMIT 5")
	}
	return err
}

// inspect is Inspect over conn. For a server that is too old, it reads only what Verify needs to report
// that.
func inspect(ctx context.Context, conn executor, publication, slot string, tables *Tables) (*State, error) {
	c, err := readServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	c.PublicationName, c.SlotName = publication, slot
	if c.ServerVersion < oldestServer {
		return c, nil
	}
	if err := c.readTables(ctx, conn, tables); err != nil {
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

// unrefillable returns the first table of Outboxes, written in SQL, that lacks the columns for a refill, or "".
func (c *State) unrefillable() string {
	for _, o := range c.Outboxes {
		if len(o.Parts) > 0 && !o.table().refillable {
			return o.table().SQLName()
		}
	}
	return ""
}
