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

// System is the database a stream reads, on a branch of its history. With the slot's name
// it is the epoch of a position: a position of another epoch names other data.
type System struct {
	ID       string // of the cluster, assigned by initdb
	Timeline int32  // grows when a standby is promoted

	// TimelineStart is where Timeline was forked off its parent: two standbys of one server may each
	// begin the same one. 0: it is the first one, or the server does not know.
	TimelineStart pglogrepl.LSN

	Database string
}

const (
	senderTimeout = "wal_sender_timeout"
	smallBuffer   = 16 << 10 // before and after Run
)

// A Stream is one replication session. Its connection is touched by one goroutine at a
// time: that of Open, Start and Run, in this order, and of Close after Run has returned.
type Stream struct {
	cfg       Config
	log       *slog.Logger
	system    System
	history   History
	walEnd    pglogrepl.LSN // flushed when the server was identified
	timeout   time.Duration // wal_sender_timeout; 0: off
	superuser bool
	wire      wire
	socket    *socket // below wire.conn
	reporter  reporter
	contact   contact
	pid       uint32 // of the server process
	filter    messageFilter
	pool      *pool
	streaming bool // START_REPLICATION has succeeded
	broken    bool // nothing more can be exchanged
}

// Open connects, makes and checks the session settings and identifies the server. ctx
// bounds that only. The Stream must be closed.
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

// OpenOver is Open over a connection of [Streaming] settings, which it closes after an error.
func OpenOver(ctx context.Context, cfg Config, conn *pgconn.PgConn, log *slog.Logger) (*Stream, error) {
	cfg = cfg.WithDefaults()
	s := &Stream{cfg: cfg, log: log, filter: cfg.messageFilter(), pool: newPool()}
	if err := s.hijack(ctx, conn); err != nil {
		Disconnect(ctx, conn)
		return nil, err
	}
	return s, nil
}

// hijack reads the settings of the server and the session, and takes the connection out of pgconn's hands.
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
	s.pid = conn.PID()
	if err := conn.SyncConn(ctx); err != nil { // nothing may stay in pgconn's buffers
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

// checkSettings makes sure that values arrive in the form we promise, whatever lies
// between us and the server.
func (s *Stream) checkSettings(ctx context.Context, conn *pgconn.PgConn) error {
	want := sessionSettings()
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
		// DateStyle also has the order of input fields.
		if value, _, _ := strings.Cut(got[name], ","); value != want[name] {
			return fmt.Errorf("%w: the session's %s is %q, it must be %q; is there a pooler in between?",
				ErrConfig, name, got[name], want[name])
		}
	}
	n, err := strconv.Atoi(got[senderTimeout]) // milliseconds
	if err != nil {
		return fmt.Errorf("read %s: %w", senderTimeout, err)
	}
	s.timeout = time.Duration(n) * time.Millisecond
	return nil
}

// Config returns the settings of s for further connections to the server it is connected to:
// where Conn names several, the others are not tried.
func (s *Stream) Config() Config {
	cfg := s.cfg
	cfg.Conn = sameServer(cfg.Conn, s.wire.conn.RemoteAddr())
	return cfg
}

// System returns which database the stream reads.
func (s *Stream) System() System { return s.system }

// History returns where the timeline of System comes from, nil for the first one and if the server does
// not know.
func (s *Stream) History() History { return s.history }

// WALEnd returns how far the server's log was flushed at Open. It is good for a comparison
// only: no stream may start at it.
func (s *Stream) WALEnd() pglogrepl.LSN { return s.walEnd }

// SenderTimeout returns the server's wal_sender_timeout as it is in force for the session:
// how long it lives without hearing from us. Zero: for ever.
func (s *Stream) SenderTimeout() time.Duration { return s.timeout }

// PID returns the process of the server that this session is, as pg_replication_slots.active_pid has
// it.
func (s *Stream) PID() uint32 { return s.pid }

// Superuser reports whether the role is one.
func (s *Stream) Superuser() bool { return s.superuser }

// patience is how long a server lives without hearing from us, and we without hearing from
// it.
func (s *Stream) patience() time.Duration { return cmp.Or(s.timeout, withoutTimeout) }

// silence is how long the server may say nothing before it counts as gone. Asked for an
// answer it gives one between two changes that it decodes; a busy machine may take its time.
func (s *Stream) silence() time.Duration { return max(s.patience(), 10*time.Second) }

// Start begins to stream: from the position the slot has, or from from if that is behind
// it. The server obeys such a position without a check and skips what lies between, so it
// must be one that was confirmed in the same epoch (see [System]), or 0.
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

// start sends the command and reads until the stream begins, or the server has said why it
// does not.
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
