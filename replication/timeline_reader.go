package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// A TimelineReader reads the timeline of a server that streams. A standby server changes its timeline while it streams, when
// it or its primary is promoted, and the stream does not show that. The TimelineReader opens a connection of its own when it
// needs one, and keeps it. One goroutine at a time uses it.
type TimelineReader struct {
	settings *pgconn.Config
	slot     string
	pid      uint32
	conn     *pgconn.PgConn // nil: none
}

// NewTimelineReader returns a TimelineReader for the server of a stream. It does not connect.
func NewTimelineReader(s *Stream) *TimelineReader {
	return &TimelineReader{settings: Walsender(s.Config().Conn), slot: s.cfg.Slot, pid: s.pid}
}

// Read returns the timeline that the server is on. Everything that the stream has received before the call is of that
// timeline or of an earlier one. Read returns an error if the stream does not hold its slot there: it may be another server.
func (r *TimelineReader) Read(ctx context.Context) (int32, error) {
	timeline, err := r.read(ctx)
	if err != nil {
		r.Close(ctx)
	}
	return timeline, err
}

func (r *TimelineReader) read(ctx context.Context) (int32, error) {
	if r.conn == nil {
		conn, err := Connect(ctx, r.settings)
		if err != nil {
			return 0, err
		}
		r.conn = conn
	}
	id, err := pglogrepl.IdentifySystem(ctx, r.conn)
	if err != nil {
		return 0, wrap(ctx, "identify the server", err, querying)
	}
	results, err := r.conn.Exec(ctx, fmt.Sprintf(`SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND active_pid = %d`,
		QuoteLiteral(r.slot), r.pid)).ReadAll()
	if err != nil {
		return 0, wrap(ctx, "look up the slot", err, querying)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return 0, fmt.Errorf("%w: WAL sender %d does not hold slot %q", ErrUnreachable, r.pid, r.slot)
	}
	return id.Timeline, nil
}

// Close closes the connection.
func (r *TimelineReader) Close(ctx context.Context) {
	if r.conn != nil {
		Disconnect(ctx, r.conn)
		r.conn = nil
	}
}
