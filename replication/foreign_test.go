package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// logical returns WAL data with a logical message.
func logical(lsn pglogrepl.LSN, prefix, content string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'M', 1}, uint64(lsn))
	b = append(append(b, prefix...), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return walData(lsn, string(b)+content)
}

// beginMessage returns WAL data with the Begin message of a transaction with commit LSN 0/20.
func beginMessage() []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, 0x20)
	b = binary.BigEndian.AppendUint64(b, 0)
	return walData(0x20, string(binary.BigEndian.AppendUint32(b, 7)))
}

// kinds returns the type and the position of the next n messages.
func (s *session) kinds(n int) []string {
	s.t.Helper()
	var all []string
	for len(all) < n {
		for _, m := range s.receive() {
			lsn, data, _ := strings.Cut(m, " ")
			all = append(all, lsn+" "+data[:1])
		}
	}
	return all
}

// The server sends the logical messages of all roles. Run drops those of other roles. A large one needs no
// additional memory, and status updates continue while it arrives.
func TestForeignMessages(t *testing.T) {
	for name, size := range map[string]int{
		"small": 10, "more than an arena": 3 * arenaSize, "more than is taken": 10 * arenaSize,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.cfg.MessagePrefix, s.cfg.MaxMessageBytes = "ours", 5*arenaSize
				s.open(0).run()
				content := strings.Repeat("x", size)
				s.server.send(append(beginMessage(), walData(0x10, "I1")...))
				first := s.kinds(2)
				for _, prefix := range []string{"", "our", "ours, or so", strings.Repeat("p", 100)} {
					for message := logical(0x11, prefix, content); len(message) > 0; {
						n := min(len(message), 100_000)
						s.server.send(message[:n])
						message = message[n:]
						bubble.Sleep(400 * time.Millisecond)
						if len(s.stream.pool.large) == 0 {
							t.Fatal("it is in memory")
						}
					}
				}
				go s.server.send(append(append(logical(0x12, "ours", content[:9]), walData(0x13, "I2")...), commit(0x20, 0x28)...))
				want := []string{"0/20 B", "0/10 I", "0/12 M", "0/13 I", "0/20 C"}
				if diff := cmp.Diff(want, append(first, s.kinds(3)...)); diff != "" {
					t.Errorf("received messages (-want +got):\n%s", diff)
				}
				last := time.Duration(0)
				for _, r := range s.server.reports() {
					if r.at-last > time.Second {
						t.Fatalf("no status update between %s and %s", last, r.at)
					}
					last = r.at
				}
				if last < time.Second {
					t.Errorf("the last status update came after %s", last)
				}
			})
		})
	}
}

// The connection may end within a message that Run drops.
func TestCloseInAForeignMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.MessagePrefix = "ours"
		s.open(0).run()
		stop := s.drain()
		message := logical(0x11, "other", strings.Repeat("x", 5*arenaSize))
		s.server.send(message[:2*arenaSize])
		s.cancel(context.Canceled)
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		stop()
		go s.server.send(append(message[2*arenaSize:], keepalive(0x30, false)...))
		synctest.Wait()
		if err := s.stream.Close(t.Context(), 0); err != nil {
			t.Errorf("Close: %v", err)
		}
		if s.stream.wire.skipping != 0 {
			t.Errorf("%d bytes of the message were not read", s.stream.wire.skipping)
		}
	})
}

// The error for a row that Postgres cannot stream names the transaction of that row, and never another one. An
// error outside of a transaction, or about something other than a value, is not a row error: the advice for a row
// error is to skip rows.
func TestRowErrorNamesItsTransaction(t *testing.T) {
	large := walData(0x15, "I"+strings.Repeat("x", 1000))[:headerSize+walHeaderSize+100]
	refusal := func(code, message, where string) []byte {
		return encode(&pgproto3.ErrorResponse{Severity: "ERROR", Code: code, Message: message, Where: where})
	}
	oversize := refusal("XX000", "invalid memory alloc request size 1258291203", "")
	for name, tc := range map[string]struct {
		sent      []byte
		commitLSN pglogrepl.LSN // of its transaction
		says      string
	}{
		"beyond our limit":                     {append(beginMessage(), large...), 0x20, "transaction 0/20: row cannot be streamed: the row at 0/15 has 1001 bytes"},
		"beyond the server's":                  {append(beginMessage(), oversize...), 0x20, "1258291203"},
		"row beyond the server's":              {append(beginMessage(), refusal("54000", "", "")...), 0x20, "54000"},
		"no text":                              {append(beginMessage(), refusal("22021", "", "")...), 0x20, "22021"},
		"not to be converted":                  {append(beginMessage(), refusal("22P05", "", "")...), 0x20, "22P05"},
		"unknown, in a row of a German server": {append(beginMessage(), refusal("XX000", "", `Slot »s«, Ausgabe-Plugin »pgoutput«, im Callback change, zugehörige LSN 0/15`)...), 0x20, "zugehörige LSN"},
		"unknown, in a row":                    {append(beginMessage(), refusal("XX000", "", `slot "s", output plugin "pgoutput", in the change callback, associated LSN 0/15`)...), 0x20, "associated LSN"},
		"of no row":                            {append(beginMessage(), refusal("XX000", "could not read from reorderbuffer spill file", "")...), 0, "spill file"},
		"no transaction":                       {oversize, 0, "1258291203"},
		"the transaction has ended":            {append(append(beginMessage(), commit(0x20, 0x28)...), oversize...), 0, "1258291203"},
		"too large, but of no change":          {encode(&pgproto3.ParameterStatus{Name: "n", Value: strings.Repeat("x", 2000)}), 0, "WAL data has 20"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.cfg.MaxMessageBytes = 1000
				s.open(0).run()
				go s.server.send(tc.sent)
				err := s.lastError()
				row, ok := errors.AsType[*RowError](err)
				if ok != (tc.commitLSN > 0) || ok && row.CommitLSN != tc.commitLSN || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("Run: %v", err)
				}
				if ok != errors.Is(err, ErrRow) {
					t.Errorf("an ErrRow without its transaction, or a transaction without an ErrRow: %v", err)
				}
			})
		})
	}
}
