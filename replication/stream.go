package replication

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// System identifies the database and the timeline that a Stream reads. A position is valid for
// one System and one slot only; elsewhere the same LSN means different data.
type System struct {
	ID       string // system identifier of the cluster, assigned by initdb
	Timeline int32  // grows when a standby is promoted

	// TimelineStart is where Timeline forked from its parent. It tells timelines with the same
	// number apart, which two promoted standbys of one server may have. 0: it is the first
	// timeline, or the server has lost its history.
	TimelineStart pglogrepl.LSN

	Database string
}

const (
	senderTimeout = "wal_sender_timeout"
	smallBuffer   = 16 << 10 // size of the buffer before and after Run
)

// A Stream is one replication session. One goroutine at a time uses its connection: it calls
// Open, Start and Run, in this order, and Close after Run has returned. Expired and Heard may
// be called from any goroutine.
type Stream struct {
	cfg       Config
	log       *slog.Logger
	system    System
	history   History
	walEnd    pglogrepl.LSN // end of the flushed WAL at IDENTIFY_SYSTEM
	timeout   time.Duration // wal_sender_timeout; 0: off
	superuser bool
	standby   bool
	wire      wire
	socket    *socket // below wire.conn
	reporter  reporter
	contact   contact
	pid       uint32 // of the WAL sender
	filter    messageFilter
	pool      *pool
	streaming bool // START_REPLICATION has succeeded
	broken    bool // the connection cannot be used any more
}

// Open connects to the server, sets and checks the session settings, and identifies the
// server. ctx limits Open only, not the Stream. The caller must close the Stream.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Stream, error) {
	cfg = cfg.WithDefaults()
	if err := CheckNames(cfg.Publication, cfg.Slot); err != nil {
		return nil, err
	}
	conn, err := Connect(ctx, Streaming(cfg.Conn))
	if err != nil {
		return nil, err
	}
	return OpenOver(ctx, cfg, conn, log)
}

// OpenOver is Open with an existing connection, which must have the settings of [Streaming]. It
// closes the connection if it fails.
func OpenOver(ctx context.Context, cfg Config, conn *pgconn.PgConn, log *slog.Logger) (*Stream, error) {
	cfg = cfg.WithDefaults()
	s := &Stream{cfg: cfg, log: log, filter: cfg.messageFilter(), pool: newPool()}
	if err := s.hijack(ctx, conn); err != nil {
		Disconnect(ctx, conn)
		return nil, err
	}
	return s, nil
}

// hijack identifies the server, checks the settings, and takes the network connection over from pgconn.
func (s *Stream) hijack(ctx context.Context, conn *pgconn.PgConn) error {
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return wrap(ctx, "identify the server", err, querying)
	}
	if s.history, err = readHistory(ctx, conn, id.Timeline); err != nil {
		return err
	}
	s.system = System{ID: id.SystemID, Timeline: id.Timeline, TimelineStart: s.history.start(), Database: id.DBName}
	s.walEnd = id.XLogPos
	if err := s.checkSettings(ctx, conn); err != nil {
		return err
	}
	s.superuser = conn.ParameterStatus("is_superuser") == "on"
	s.standby = conn.ParameterStatus("in_hot_standby") == "on"
	s.pid = conn.PID()
	if err := conn.SyncConn(ctx); err != nil { // empties pgconn's buffers
		return wrap(ctx, "prepare the connection", err, querying)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return fmt.Errorf("prepare the connection: %w", err)
	}
	s.wire = wire{
		max:  headerSize + walHeaderSize + s.cfg.MaxMessageBytes,
		lead: headerSize + walHeaderSize + messageHeaderSize + s.filter.longest(),
		buf:  make([]byte, smallBuffer),
	}
	s.wire.conn, s.socket = socketOf(hijacked.Conn)
	return nil
}

// checkSettings checks that the session settings are in effect: a connection pooler may drop
// them. It also reads and limits wal_sender_timeout.
func (s *Stream) checkSettings(ctx context.Context, conn *pgconn.PgConn) error {
	want := streamSettings()
	names := slices.Sorted(maps.Keys(want))
	results, err := conn.Exec(ctx, fmt.Sprintf(`SELECT lower(name), setting FROM pg_catalog.pg_settings WHERE lower(name) IN ('%s', '%s')`,
		strings.Join(names, "', '"), senderTimeout)).ReadAll()
	if err != nil {
		return wrap(ctx, "read the session's settings", err, querying)
	}
	got := make(map[string]string)
	for _, result := range results {
		for _, row := range result.Rows {
			got[string(row[0])] = string(row[1])
		}
	}
	for _, name := range names {
		// The value of DateStyle also has the order of input fields, as in "ISO, MDY".
		if value, _, _ := strings.Cut(got[name], ","); value != want[name] {
			return fmt.Errorf("%w: the session's %s is %q and must be %q; if a connection pooler is in between, connect to Postgres directly",
				ErrConfig, name, got[name], want[name])
		}
	}
	n, err := strconv.Atoi(got[senderTimeout]) // milliseconds
	if err != nil {
		return fmt.Errorf("read %s: %w", senderTimeout, err)
	}
	s.timeout = time.Duration(n) * time.Millisecond
	return s.limitTimeout(ctx, conn)
}

// leastTimeout is the least wal_sender_timeout of a Stream with a lease. On a busy machine, Postgres would end
// a session with a shorter one before a status update arrives.
const leastTimeout = time.Second

// limitTimeout keeps wal_sender_timeout of the session between leastTimeout and Config.Lease.
func (s *Stream) limitTimeout(ctx context.Context, conn *pgconn.PgConn) error {
	limit := s.timeout
	switch lease := s.cfg.Lease; {
	case lease == 0:
	case limit == 0 || limit > lease:
		limit = lease
	case limit < leastTimeout:
		limit = min(leastTimeout, lease)
	}
	if limit == s.timeout {
		return nil
	}
	if err := exec(ctx, conn, fmt.Sprintf("SET %s = '%dms'", senderTimeout, limit.Milliseconds())); err != nil {
		return wrap(ctx, "set "+senderTimeout, err, querying)
	}
	s.timeout = limit
	return nil
}

// Config returns the configuration of s. Its Conn connects to the server of this session only, even
// if the original names several.
func (s *Stream) Config() Config {
	cfg := s.cfg
	cfg.Conn = SameServer(cfg.Conn, s.wire.conn.RemoteAddr())
	return cfg
}

// System returns the database and timeline that s reads.
func (s *Stream) System() System { return s.system }

// History returns the history of the timeline of System. It is nil for the first timeline, and if the
// server has lost the history.
func (s *Stream) History() History { return s.history }

// WALEnd returns the end of the server's flushed WAL at the time of Open. Use it for comparisons
// only; a stream that started there would skip rows.
func (s *Stream) WALEnd() pglogrepl.LSN { return s.walEnd }

// SenderTimeout returns wal_sender_timeout of the session: Postgres ends the session when it
// has heard nothing for so long. Zero: never.
func (s *Stream) SenderTimeout() time.Duration { return s.timeout }

// PID returns the process id of the WAL sender of this session, as in
// pg_replication_slots.active_pid.
func (s *Stream) PID() uint32 { return s.pid }

// Superuser reports whether the role is a superuser.
func (s *Stream) Superuser() bool { return s.superuser }

// Standby reports whether the server was a standby server at the start of the stream. It may be promoted since.
func (s *Stream) Standby() bool { return s.standby }

// effectiveTimeout returns wal_sender_timeout, or the value that we use in its place if it is
// off. Both sides use it for the other.
func (s *Stream) effectiveTimeout() time.Duration { return cmp.Or(s.timeout, withoutTimeout) }

// maxSilence returns for how long the server may send nothing before the connection counts as
// lost. A WAL sender replies to a request between two changes that it decodes, which may take
// seconds on a busy machine.
func (s *Stream) maxSilence() time.Duration { return max(s.effectiveTimeout(), 10*time.Second) }

// Start sends START_REPLICATION and returns when the stream has started: at the confirmed
// position of the slot, or at from if that is higher. Postgres does not check from and skips
// everything below it, so from must be 0 or a position that was confirmed for the same slot
// and [System].
func (s *Stream) Start(ctx context.Context, from pglogrepl.LSN) error {
	doing := fmt.Sprintf("start slot %q at %s", s.cfg.Slot, from)
	command := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s`,
		QuoteIdent(s.cfg.Slot), from, QuoteLiteral(QuoteIdent(s.cfg.Publication)))
	if s.filter.wantsAny() {
		command += ", messages 'true'"
	}
	command += ")"
	var refused error
	err := s.during(ctx, func() (err error) {
		refused, err = s.start(doing, command)
		return err
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		s.broken = true
		return wrap(ctx, doing, err, starting)
	}
	s.streaming = true
	s.reporter = reporter{conn: s.wire.conn}
	s.contact.start(time.Now(), s.timeout)
	return nil
}

// start sends the command and reads until the stream has started. refused is the error of the
// server if it rejects the command; err is any other error.
func (s *Stream) start(doing, command string) (refused, err error) {
	if err := s.send(&pgproto3.Query{String: command}); err != nil {
		return nil, err
	}
	for {
		kind, body, ok, err := s.wire.next()
		if err == nil && !ok {
			err = s.wire.read()
		}
		switch {
		case err != nil:
			return nil, err
		case !ok:
			continue
		}
		switch kind {
		case kindCopyBoth:
			return nil, nil
		case kindError:
			return pgError(doing, body, starting), nil
		case kindNotice, kindParameter:
		default:
			return nil, fmt.Errorf("unexpected message of type %q", kind)
		}
	}
}
