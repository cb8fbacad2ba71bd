package replication

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestSessionParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.Publication = `we"ird';pub`
		s.cfg.Conn.RuntimeParams = map[string]string{"datestyle": "German", "options": "-c wal_sender_timeout=5s"}
		s.server.settings[senderTimeout] = "5000"
		s.open(0x16B374D848).run()

		want := map[string]string{
			"user": "u", "database": "app", "replication": "database", "application_name": "outbox-cdc",
			"options": "-c wal_sender_timeout=5s", "client_encoding": "UTF8", "client_min_messages": "warning",
			"datestyle": "ISO", "intervalstyle": "postgres", "timezone": "UTC", "bytea_output": "hex",
			"extra_float_digits": "3", "row_security": "off", "search_path": "pg_catalog",
			"standard_conforming_strings": "on", "quote_all_identifiers": "off", "tcp_user_timeout": "0",
			"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
			"default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "default_transaction_deferrable": "off",
		}
		if diff := cmp.Diff(want, s.server.Startup); diff != "" {
			t.Errorf("parameters (-want +got):\n%s", diff)
		}
		command := `START_REPLICATION SLOT "slot" LOGICAL 16/B374D848 (proto_version '1', publication_names '"we""ird'';pub"')`
		if s.server.command != command {
			t.Errorf("command\n%s, want\n%s", s.server.command, command)
		}
		if got, want := s.stream.System(), (System{ID: "7000000000000000001", Timeline: 3, TimelineStart: 0x1000, Database: "app"}); got != want {
			t.Errorf("System() = %v, want %v", got, want)
		}
		if got := s.stream.SenderTimeout(); got != 5*time.Second {
			t.Errorf("SenderTimeout() = %s", got)
		}
		if s.cfg.Conn.RuntimeParams["datestyle"] != "German" {
			t.Error("the caller's configuration was changed")
		}
	})
}

// Open lowers wal_sender_timeout of a real server to the lease, and raises one that no session could keep.
func TestLease(t *testing.T) {
	for options, want := range map[string]time.Duration{
		"":                             8 * time.Second,
		"-c wal_sender_timeout=0":      8 * time.Second,
		"-c wal_sender_timeout=8001ms": 8 * time.Second,
		"-c wal_sender_timeout=5s":     5 * time.Second,
		"-c wal_sender_timeout=10ms":   time.Second,
	} {
		cfg := Config{Conn: pgtest.Database(t).Config(t), Publication: "p", Slot: "s", Lease: 8 * time.Second}
		cfg.Conn.RuntimeParams["options"] = options
		s, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.SenderTimeout(); got != want {
			t.Errorf("%q: SenderTimeout() = %s, want %s", options, got, want)
		}
		if err := s.Close(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	fatal := func(code string) func(*server) {
		return func(s *server) {
			_, _ = s.ReceiveStartupMessage()
			s.send(encode(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "no"}))
			s.Net.Close()
			close(s.gone)
		}
	}
	for name, tc := range map[string]struct {
		change func(*session)
		serve  func(*server)
		want   error
	}{
		"slot name":        {change: func(s *session) { s.cfg.Slot = `a"; DROP TABLE outbox` }, want: ErrConfig},
		"no publication":   {change: func(s *session) { s.cfg.Publication = "" }, want: ErrConfig},
		"long publication": {change: func(s *session) { s.cfg.Publication = strings.Repeat("p", 64) }, want: ErrConfig},
		"settings":         {change: func(s *session) { s.server.settings["bytea_output"] = "escape" }, want: ErrConfig},
		"password":         {serve: fatal("28P01"), want: ErrAccess},
		"pg_hba.conf":      {serve: fatal("28000"), want: ErrAccess},
		"database":         {serve: fatal("3D000"), want: ErrAccess},
		"not replication":  {serve: fatal("42501"), want: ErrAccess},
		"too many":         {serve: fatal("53300"), want: ErrBusy},
		"starting up":      {serve: fatal("57P03"), want: ErrUnreachable},
		"bad option":       {serve: fatal("22023"), want: ErrConfig},
		"hung up":          {serve: func(s *server) { _, _ = s.ReceiveStartupMessage(); s.Net.Close(); close(s.gone) }, want: ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				if tc.change != nil {
					tc.change(s)
				}
				if tc.serve == nil {
					tc.serve = (*server).serve
				}
				go tc.serve(s.server)
				stream, err := Open(t.Context(), s.cfg, discard())
				if stream != nil || !errors.Is(err, tc.want) {
					t.Errorf("Open = %v, %v, want %v", stream, err, tc.want)
				}
				s.server.Net.Close()
				<-s.server.gone
			})
		})
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t) // the server of the session sends nothing
		defer s.server.Net.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := Open(ctx, s.cfg, discard())
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
		if d := bubble.Since(began); d != 3*time.Second {
			t.Errorf("after %s", d)
		}

		stop := errors.New("stop")
		canceled, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(stop)
		if _, err := Open(canceled, s.cfg, discard()); !errors.Is(err, stop) {
			t.Errorf("Open: %v, want %v", err, stop)
		}
	})
}

func TestDialError(t *testing.T) {
	cfg := testConfig(t, func() (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	})
	if _, err := Open(t.Context(), cfg, discard()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Open: %v", err)
	}
}

// If a DSN names several servers, further connections go to the server that the stream is connected to.
func TestConfigStaysAtItsServer(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	stream, err := Open(t.Context(), s.cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context(), 0)
	conn := stream.cfg.Conn
	conn.Fallbacks = append(slices.Clone(conn.Fallbacks), &pgconn.FallbackConfig{Host: conn.Host, Port: conn.Port})
	conn.Host, conn.Port = "127.0.0.1", 1
	conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsStandby // its role before its promotion
	var dialed []string
	dial := conn.DialFunc
	conn.DialFunc = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		dialed = append(dialed, address)
		return dial(ctx, network, address)
	}
	other, err := Connect(t.Context(), stream.Config().Conn)
	if err != nil {
		t.Fatal(err)
	}
	Disconnect(t.Context(), other)
	if diff := cmp.Diff([]string{stream.wire.conn.RemoteAddr().String()}, dialed); diff != "" {
		t.Errorf("dialed (-want +got):\n%s", diff)
	}
}

func TestStartRefused(t *testing.T) {
	for code, want := range map[string]error{
		"42704": ErrSlotMissing, "55006": ErrSlotInUse, "53400": ErrBusy, "42501": ErrAccess,
		"0A000": ErrConfig, "XX000": ErrConfig, "22023": ErrConfig, "57P01": ErrUnreachable,
	} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.server.refuse = &pgproto3.ErrorResponse{Severity: "ERROR", Code: code, Message: "no"}
				go s.server.serve()
				stream, err := Open(t.Context(), s.cfg, discard())
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.Start(t.Context(), 0); !errors.Is(err, want) {
					t.Errorf("Start: %v, want %v", err, want)
				}
				if err := stream.Close(t.Context(), 0); err != nil {
					t.Errorf("Close: %v", err)
				}
				<-s.server.gone
			})
		})
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0x10).run()
		// The server responds to CopyDone only after the rest of the transaction.
		rest := append(walData(0x41, "I"), walData(0, strings.Repeat("x", 1<<20))...)
		go s.server.send(commit(0x20, 0x30), walData(0x40, "I"), rest)
		s.receive()
		s.receive()
		s.cancel(nil)
		<-s.ended
		s.server.reports()
		if err := s.stream.Close(t.Context(), 0x30); err != nil {
			t.Fatal(err)
		}
		<-s.server.copyDone
		<-s.server.gone
		if diff := cmp.Diff([]string{"0/30"}, lsns(s.server.reports())); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.server.silent = true
		s.open(0).run()
		s.cancel(nil)
		<-s.ended
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := s.stream.Close(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if d := bubble.Since(began); d != 5*time.Second {
			t.Errorf("after %s", d)
		}
	})
}

func lsns(reports []status) []string {
	var all []string
	for _, r := range reports {
		all = append(all, r.lsn.String())
	}
	return all
}
