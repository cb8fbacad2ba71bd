package catalog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// OpenTail is [replication.Open] with a temporary slot, which the server drops when the connection ends. Reading
// from it and confirming positions advances no other slot. The stream starts at the current position or, if slot
// is not empty, at the position of that slot. Verify must accept that slot; it may be in use. OpenTail ignores
// cfg.Slot. It also returns the State of the publication and of slot.
//
// To start at the current position, Postgres waits for every transaction in progress. If one does not end within
// 20 s, the error names it. If the server has no free slot, the error wraps ErrBusy.
func OpenTail(ctx context.Context, cfg replication.Config, tables []string, slot string, log *slog.Logger) (*replication.Stream, *State, error) {
	cfg = cfg.WithDefaults()
	cfg.Slot = fmt.Sprintf("outbox_cdc_tail_%08x", rand.Uint32())
	looked := slot
	if looked == "" {
		looked = cfg.Slot
	}
	s, err := newSetup(ctx, SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: looked, Tables: tables, Messages: len(cfg.Messages) > 0})
	if err != nil {
		return nil, nil, err
	}
	defer s.close(ctx)
	state, err := s.inspect(ctx)
	if err == nil && slot == "" {
		err = cmp.Or(state.verifyPublication(), state.VerifyOutboxes())
	} else if err == nil {
		err = state.Verify()
	}
	if err != nil {
		return nil, nil, err
	}
	conn, err := s.temporarySlot(ctx, cfg.Slot, slot)
	if err != nil {
		return nil, nil, err
	}
	stream, err := replication.OpenOver(ctx, cfg, conn, log)
	return stream, state, err
}

// temporarySlot creates a temporary slot, as a copy of the slot of if that is not empty. It returns the
// connection that owns the slot.
func (s *setup) temporarySlot(ctx context.Context, name, of string) (*pgconn.PgConn, error) {
	if of == "" {
		slot, err := s.createSlot(ctx, replication.Streaming(s.cfg.Conn), name, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL %s NOEXPORT_SNAPSHOT", name, plugin))
		if err != nil {
			return nil, err
		}
		if _, err := slot.conn.Exec(ctx, "SET "+lockTimeout+" = 0").ReadAll(); err != nil { // the timeout was for creating the slot
			replication.Disconnect(ctx, slot.conn)
			return nil, replication.QueryError(ctx, "prepare the connection", err)
		}
		return slot.conn, nil
	}
	conn, err := replication.Connect(ctx, replication.Streaming(s.cfg.Conn))
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("SELECT pg_catalog.pg_copy_logical_replication_slot(%s, %s, true)", replication.QuoteLiteral(of), replication.QuoteLiteral(name))).ReadAll()
	if err != nil {
		replication.Disconnect(ctx, conn)
		return nil, replication.QueryError(ctx, fmt.Sprintf("copy slot %q", of), err)
	}
	return conn, nil
}
