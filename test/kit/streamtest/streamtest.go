// Package streamtest has scripted replication streams: pgoutput messages of an outbox table as a server sends them, and a source that
// hands them out.
package streamtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Script is the input of a source, message by message.
type Script []replication.Message

// OutboxOID is the OID of the outbox table.
const OutboxOID = 16385

// WALData returns a message of pgoutput.
func WALData(b []byte) *replication.WALData { return &replication.WALData{Start: 1, Data: b} }

// Begin returns a Begin message, with the time 2000-01-01.
func Begin(commitLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, 0)
	return WALData(binary.BigEndian.AppendUint32(b, 731))
}

// Commit returns a Commit message.
func Commit(commitLSN, endLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(endLSN))
	return WALData(binary.BigEndian.AppendUint64(b, 0))
}

// OutboxColumns returns the columns of the outbox table.
func OutboxColumns() []string {
	return []string{"id", "aggregatetype", "aggregateid", "type", "payload"}
}

// OutboxRelation returns the Relation message of the outbox table.
func OutboxRelation() *replication.WALData { return WALData(RelationOf(OutboxColumns()...)) }

// RelationOf returns the bytes of a Relation message of the outbox table with other columns. All are text.
func RelationOf(columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, OutboxOID)
	b = append(b, "public\x00outbox\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(append(append(b, 0), c...), 0)
		b = binary.BigEndian.AppendUint32(b, 25)
		b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	}
	return b
}

// Null represents NULL in a row.
const Null = "\x00"

// InsertOf returns the bytes of an Insert message of the outbox table.
func InsertOf(row ...string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'I'}, OutboxOID), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(row)))
	for _, v := range row {
		if v == Null {
			b = append(b, 'n')
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// Insert returns the Insert message of an order with the given key, id n and payload n.
func Insert(key string, n int) *replication.WALData { return InsertInto("order", key, n) }

// InsertInto is Insert with another aggregate type.
func InsertInto(aggregate, key string, n int) *replication.WALData {
	return WALData(InsertOf(fmt.Sprint("id-", n), aggregate, key, "T", fmt.Sprint(n)))
}

// Keepalive returns a keepalive.
func Keepalive(lsn pglogrepl.LSN) *replication.Keepalive { return &replication.Keepalive{WALEnd: lsn} }

// Transaction returns a whole transaction with rows of the given key.
func Transaction(commitLSN, endLSN pglogrepl.LSN, key string, ns ...int) Script {
	s := Script{Begin(commitLSN)}
	for _, n := range ns {
		s = append(s, Insert(key, n))
	}
	return append(s, Commit(commitLSN, endLSN))
}

// Join returns the scripts one after the other, with OutboxRelation before them.
func Join(scripts ...Script) Script {
	s := Script{OutboxRelation()}
	for _, part := range scripts {
		s = append(s, part...)
	}
	return s
}

// ErrLost is the error of a lost connection.
var ErrLost = fmt.Errorf("read: %w", replication.ErrUnreachable)

// A Source hands out its Script, one message per batch. Then it returns Err if that is set, or waits until
// reading is stopped.
type Source struct {
	Script    Script
	Err       error
	Next      chan struct{} // if set, every message waits for a token
	Lost      chan struct{} // if set, closing it ends the source with ErrLost
	Silence   error         // returned by Expired
	Silent    bool          // Close gets no response
	Confirmed pglogrepl.LSN // set by Close
	Closed    bool          // set by Close
}

// emptyBatches is how many empty batches a Source with Err hands out last: more than a reader queues, so that it has handled the
// messages then.
const emptyBatches = 4

// Run hands out the messages.
func (s *Source) Run(ctx context.Context, _ func() pglogrepl.LSN, out chan<- *replication.Batch) error {
	for _, m := range s.Script {
		if s.Next != nil {
			select {
			case <-s.Next:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case out <- &replication.Batch{Messages: []replication.Message{m}}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.Err != nil {
		for range emptyBatches {
			select {
			case out <- &replication.Batch{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return s.Err
	}
	select {
	case <-s.Lost:
		return ErrLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Expired returns Silence.
func (s *Source) Expired() error { return s.Silence }

// Reported returns Confirmed.
func (s *Source) Reported() pglogrepl.LSN { return s.Confirmed }

// Heard does nothing.
func (s *Source) Heard(time.Time) {}

// Close notes the confirmed position.
func (s *Source) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	s.Closed = true
	if s.Silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.Confirmed = confirmed
	return nil
}

// A Catalog has no table, unless the test says what it has.
type Catalog struct {
	Describes encode.Describe
	State     *catalog.State // what Inspect returns; nil: an empty publication
	Pasts     func(ctx context.Context, table uint32) (catalog.Past, error)
}

// Describe returns Describes.
func (c *Catalog) Describe(context.Context) encode.Describe { return c.Describes }

// Inspect returns State.
func (c *Catalog) Inspect(context.Context) (*catalog.State, error) {
	if c.State != nil {
		return c.State, nil
	}
	return &catalog.State{Publication: &catalog.Publication{}}, nil
}

// Past returns what Pasts returns.
func (c *Catalog) Past(ctx context.Context, table uint32) (catalog.Past, error) {
	if c.Pasts == nil {
		return catalog.Past{}, nil
	}
	return c.Pasts(ctx, table)
}

// CatalogOf returns the catalog of an outbox with the given columns.
func CatalogOf(columns ...string) *catalog.State {
	table := catalog.Table{OID: OutboxOID, Schema: "public", Name: "outbox"}
	for _, c := range columns {
		table.Columns = append(table.Columns, catalog.Column{Name: c, TypeOID: 25, TypeName: "text"})
	}
	return &catalog.State{
		SystemID: "7", SlotName: "slot", PublicationName: "pub", ReadAt: time.Now(), WALEnd: 0x2000,
		Publication: &catalog.Publication{Name: "pub", Insert: true, Tables: []catalog.Table{table}},
		Outboxes:    []catalog.Outbox{{Configured: "outbox", Parts: []catalog.Part{{OID: OutboxOID, Schema: "public", Name: "outbox", Kind: "r", Persistence: "p"}}}},
		Slot:        &catalog.Slot{Name: "slot", Plugin: "pgoutput", WALStatus: "reserved", RestartLSN: 0x1000, ConfirmedFlushLSN: 0x2000},
	}
}

// OutboxCatalog returns the catalog of the outbox.
func OutboxCatalog() *catalog.State { return CatalogOf(OutboxColumns()...) }
