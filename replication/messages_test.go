package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Run returns messages of several prefixes. A prefix must match exactly.
func TestMessagesOfSeveralPrefixes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.MessagePrefix, s.cfg.Messages = "outbox-cdc", []string{"orders", "or"}
		s.open(0).run()
		sent := beginMessage()
		for i, prefix := range []string{"orders", "o", "order", "orders2", "or", "outbox-cdc", "outbox", ""} {
			sent = append(sent, logical(pglogrepl.LSN(0x10+i), prefix, "{}")...)
		}
		go s.server.send(append(sent, commit(0x20, 0x28)...))
		want := []string{"0/20 B", "0/10 M", "0/14 M", "0/15 M", "0/20 C"}
		if diff := cmp.Diff(want, s.kinds(5)); diff != "" {
			t.Errorf("received messages (-want +got):\n%s", diff)
		}
	})
}

// With AnyPrefix, Run returns all messages.
func TestMessagesOfAnyPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.MessagePrefix, s.cfg.Messages = "outbox-cdc", []string{AnyPrefix}
		s.open(0).run()
		sent := beginMessage()
		for i, prefix := range []string{"orders", "", "outbox-cdc"} {
			sent = append(sent, logical(pglogrepl.LSN(0x10+i), prefix, "{}")...)
		}
		go s.server.send(append(sent, commit(0x20, 0x28)...))
		if diff := cmp.Diff([]string{"0/20 B", "0/10 M", "0/11 M", "0/12 M", "0/20 C"}, s.kinds(5)); diff != "" {
			t.Errorf("received messages (-want +got):\n%s", diff)
		}
	})
}

// Postgres resends a non-transactional message until the client confirms its end LSN. That position does not skip
// anything after the message.
func TestMessageOutsideATransaction(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "CREATE TABLE outbox (id int)")
		s := sourceOf(t, db)
		s.cfg.Messages = []string{"rows"}
		// One statement, so that there is no other WAL between the two messages and the commit record.
		db.Exec(t, `SELECT pg_logical_emit_message(true, 'rows', 'a'), pg_logical_emit_message(false, 'rows', 'b'), pg_logical_emit_message(false, 'rows', 'c')`)
		db.Exec(t, `INSERT INTO outbox VALUES (1)`)

		from := pglogrepl.LSN(0)
		for _, want := range []string{"b c a 1", "c a 1", "a 1"} {
			stream, err := Open(t.Context(), s.cfg, discard())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Start(t.Context(), from); err != nil {
				t.Fatal(err)
			}
			got, first := contents(t, stream, strings.Count(want, " ")+1)
			if got != want {
				t.Errorf("from %s: %q, want %q", from, got, want)
			}
			from = first
			if err := stream.Close(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
	})
}

// contents reads n messages and rows. It returns their last bytes, and the LSN of the first message.
func contents(t *testing.T, stream *Stream, n int) (text string, first pglogrepl.LSN) {
	t.Helper()
	var all []string
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	out, ended := make(chan *Batch), make(chan error, 1)
	go func() {
		defer close(out)
		ended <- stream.Run(ctx, func() pglogrepl.LSN { return 0 }, out)
	}()
	for b := range out {
		for _, message := range b.Messages {
			m, ok := message.(*WALData)
			if !ok || len(all) == n {
				continue
			}
			if m.Data[0] == 'M' && first == 0 {
				first = pglogrepl.LSN(binary.BigEndian.Uint64(m.Data[2:]))
			}
			if m.Data[0] == 'M' || m.Data[0] == 'I' {
				all = append(all, string(m.Data[len(m.Data)-1:]))
			}
			if len(all) == n {
				cancel()
			}
		}
		b.Release()
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the stream has ended: %v", err)
	}
	return strings.Join(all, " "), first
}

// Start requests messages only if the configuration has a prefix.
func TestMessagesOption(t *testing.T) {
	for _, prefix := range []string{"", "ours"} {
		s := newSession(t)
		s.cfg.MessagePrefix = prefix
		s.open(0)
		if got := strings.Contains(s.server.command, "messages 'true'"); got != (prefix != "") {
			t.Errorf("MessagePrefix %q: %s", prefix, s.server.command)
		}
		s.run()
	}
}
