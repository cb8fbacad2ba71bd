package pump

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Catalog is the catalog of the server that streams. The Pump reads it only when a message of the stream is about something
// that it does not know.
type Catalog interface {
	// Describe returns the function with which a router reads the catalog. It may be nil if no router needs the catalog.
	Describe(ctx context.Context) encode.Describe

	// Inspect returns the present state of the publication, its tables and the slot.
	Inspect(ctx context.Context) (*catalog.State, error)

	// Past returns what a neighbour was while unconfirmed rows were written.
	Past(ctx context.Context, table uint32) (catalog.Past, error)
}

// A ServerCatalog is the Catalog of the server of a stream.
type ServerCatalog struct {
	Rows   rows.Config        // of the relay
	Stream replication.Config // of the stream, whose connections lead to its server
	Tables *catalog.Tables    // the outbox tables
}

// Describe returns the function with which a router reads the catalog.
func (c *ServerCatalog) Describe(ctx context.Context) encode.Describe { return c.Rows.Describe(ctx) }

// Inspect reads the state of the publication, its tables and the slot.
func (c *ServerCatalog) Inspect(ctx context.Context) (*catalog.State, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Rows.Timeout)
	defer cancel()
	return catalog.Inspect(ctx, c.Stream.Conn, c.Rows.Source.Publication, c.Rows.Source.Slot, c.Tables)
}

// Past reads the past of a table.
func (c *ServerCatalog) Past(ctx context.Context, table uint32) (catalog.Past, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Rows.Timeout)
	defer cancel()
	return catalog.ReadPast(ctx, c.Stream.Conn, c.Stream.Slot, table)
}
