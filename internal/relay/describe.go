package relay

import (
	"context"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// describe asks the source's catalog about a relation, over a connection that is open no
// longer than that takes.
func (c *Relay) describe(ctx context.Context) encode.Describe {
	return func(rel *decoder.Relation) ([]connect.Column, error) {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
		defer cancel()
		described, err := catalog.Describe(ctx, c.cfg.Source.Conn, rel.OID)
		var columns []connect.Column
		for _, d := range described {
			columns = append(columns, connect.Column{Name: d.Name, Type: dataType(d.Type), Nullable: d.Nullable, Default: d.Default})
		}
		return columns, err
	}
}

func dataType(t catalog.TypeDescription) connect.Type {
	data := connect.Type{OID: t.OID, Name: t.Name, Kind: t.Kind, Modifier: t.Modifier, Labels: t.Labels}
	if t.Elem != nil {
		data.Elem = new(dataType(*t.Elem))
	}
	return data
}

// A checker says whether what the publication sends can become records. It belongs to one
// goroutine at a time: the watcher's while a session runs.
type checker struct {
	router *encode.Router
	known  map[uint32]*decoder.Relation // by OID, as last seen; the router does not look at one twice
}

// check returns a *[encode.ColumnError] for the first table that cannot be relayed, or why that
// is not known.
func (c *checker) check(state *catalog.State, describe encode.Describe) error {
	if state.Publication == nil {
		return nil
	}
	c.router.SetDescribe(describe)
	for _, t := range state.Publication.Tables {
		if err := c.router.Check(c.relation(t)); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) relation(t catalog.Table) *decoder.Relation {
	rel := Relation(t)
	known := c.known[rel.OID]
	if known != nil && known.Namespace == rel.Namespace && known.Name == rel.Name && slices.Equal(known.Columns, rel.Columns) {
		return known
	}
	c.known[rel.OID] = rel
	return rel
}
