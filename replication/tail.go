package replication

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgconn"
)

// OpenTail is Open over a temporary slot of its own, which the server drops when the connection ends:
// whatever is read from it, and confirmed, moves no other slot. It begins now, or, if slot is not
// empty, where that one stands, which must be one that Verify accepts and may be in use. cfg.Slot
// does not count. It returns what the catalog says, too, of the publication and of slot.
//
// To begin now, the server waits for every transaction in progress; if one does not end within 10 s
// the error names it. A server without a free slot is ErrBusy.
func OpenTail(ctx context.Context, cfg Config, slot string, log *slog.Logger) (*Stream, *Catalog, error) {
	cfg = cfg.withDefaults()
	cfg.Slot = fmt.Sprintf("outbox_cdc_tail_%08x", rand.Uint32())
	looked := slot
	if looked == "" {
		looked = cfg.Slot
	}
	s, err := newSetup(ctx, SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: looked, Messages: len(cfg.Messages) > 0})
	if err != nil {
		return nil, nil, err
	}
	defer s.close(ctx)
	catalog, err := s.catalog(ctx)
	if err == nil && slot == "" {
		err = catalog.verifyPublication()
	} else if err == nil {
		err = catalog.Verify()
	}
	if err != nil {
		return nil, nil, err
	}
	conn, err := s.temporarySlot(ctx, cfg.Slot, slot)
	if err != nil {
		return nil, nil, err
	}
	stream, err := openOver(ctx, cfg, conn, log)
	return stream, catalog, err
}

// temporarySlot makes a slot, as a copy of another one if that is named, and returns the connection that
// it lives as long as.
func (s *setup) temporarySlot(ctx context.Context, name, of string) (*pgconn.PgConn, error) {
	if of == "" {
		slot, err := s.createSlot(ctx, streamer(s.cfg.Conn), name, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL %s NOEXPORT_SNAPSHOT", name, plugin))
		if err != nil {
			return nil, err
		}
		if _, err := slot.conn.Exec(ctx, "SET "+lockTimeout+" = 0").ReadAll(); err != nil { // it was for the slot's making
			closeConn(ctx, slot.conn)
			return nil, wrap(ctx, "prepare the connection", err, querying)
		}
		return slot.conn, nil
	}
	conn, err := connect(ctx, streamer(s.cfg.Conn))
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("SELECT pg_catalog.pg_copy_logical_replication_slot(%s, %s, true)", quoteLiteral(of), quoteLiteral(name))).ReadAll()
	if err != nil {
		closeConn(ctx, conn)
		return nil, wrap(ctx, fmt.Sprintf("copy slot %q", of), err, querying)
	}
	return conn, nil
}
