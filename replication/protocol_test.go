package replication

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A keepalive inside a transaction must not be after its commit record. Otherwise confirming it would lose the
// unread rows: the server skips a transaction whose commit record is before the confirmed position.
func TestKeepaliveInsideATransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a keepalive of Postgres, and reads in time for the next one")
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.cfg.Conn.RuntimeParams["options"] = "-c wal_sender_timeout=5s"
		s.insert(t, 1, 60_000) // more than the socket buffers hold, so that the server blocks inside it
		s.insert(t, 60_001, 60_010)
		stream, err := Open(t.Context(), s.cfg, discard())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Start(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		w := &stream.wire
		var open pglogrepl.LSN // the commit LSN of the open transaction; 0: none is open
		inside, rows := 0, 0
		for rows < 60_010 {
			kind, body, ok, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				if err := w.read(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if kind != kindCopyData {
				t.Fatalf("message of type %q", kind)
			}
			switch {
			case body[0] == 'k':
				if walEnd := pglogrepl.LSN(binary.BigEndian.Uint64(body[1:])); open != 0 {
					inside++
					if walEnd > open {
						t.Errorf("a keepalive inside the transaction that commits at %s is at %s", open, walEnd)
					}
				}
				if err := stream.reporter.send(time.Now(), 0, true); err != nil {
					t.Fatal(err)
				}
			case body[25] == 'B':
				open = pglogrepl.LSN(binary.BigEndian.Uint64(body[26:]))
			case body[25] == 'C':
				open = 0
			case body[25] == 'I':
				if rows++; rows == 20_000 {
					<-time.After(2700 * time.Millisecond) // the server requests a reply after half of its timeout
				}
			}
		}
		if inside == 0 {
			t.Error("no keepalive came inside a transaction")
		}
		t.Logf("%d keepalives inside a transaction", inside)
		stream.wire.conn.Close()
	})
}

// If the publication did not exist at a position of the WAL, the stream ends. Postgres 18 only warns and skips the
// rows.
func TestPublicationDropped(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		r := s.start(t, 0, false)
		s.insert(t, 1, 1)
		<-r.commits
		s.Exec(t, "DROP PUBLICATION pub")
		s.insert(t, 2, 2)
		if err := r.wait(t); !errors.Is(err, ErrPublication) || !strings.Contains(err.Error(), "pub") {
			t.Errorf("Run: %v", err)
		} else {
			t.Log(err)
		}
		if err := r.stream.Close(t.Context(), pglogrepl.LSN(r.confirmed.Load())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestPublicationMissing(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, "DROP PUBLICATION pub")
		r := s.start(t, 0, false)
		s.insert(t, 1, 1)
		if err := r.wait(t); !errors.Is(err, ErrPublication) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTerminated(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		r := s.start(t, 0, false)
		for _, how := range []string{"pg_terminate_backend", "pg_cancel_backend"} {
			s.Exec(t, "SELECT "+how+"(active_pid) FROM pg_replication_slots WHERE slot_name = $1", s.cfg.Slot)
			if err := r.wait(t); !errors.Is(err, ErrUnreachable) {
				t.Errorf("Run after %s: %v", how, err)
			}
			_ = r.stream.Close(t.Context(), 0)
			r = s.start(t, 0, false)
		}
	})
}

func TestSlotRefused(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		start := func(cfg Config) error {
			t.Helper()
			stream, err := Open(t.Context(), cfg, discard())
			if err != nil {
				t.Fatal(err)
			}
			err = stream.Start(t.Context(), 0)
			if err := stream.Close(t.Context(), 0); err != nil {
				t.Errorf("Close: %v", err)
			}
			return err
		}
		r := s.start(t, 0, false)
		if err := start(s.cfg); !errors.Is(err, ErrSlotInUse) {
			t.Errorf("slot in use: %v", err)
		}
		r.close(t)
		if err := start(s.cfg); err != nil {
			t.Errorf("after Close: %v", err)
		}

		missing := s.cfg
		missing.Slot += "_x"
		if err := start(missing); !errors.Is(err, ErrSlotMissing) {
			t.Errorf("slot missing: %v", err)
		}
	})
}

// Close returns when the server has released the slot.
func TestCloseFreesTheSlot(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	for range 20 {
		s.start(t, 0, false).close(t)
	}
}
