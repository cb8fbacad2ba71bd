package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// updateMessage returns the update of a row with key a, id n and payload n. was is the old id, or 0 if the id is
// unchanged.
func updateMessage(n, was int) *replication.WALData {
	b := binary.BigEndian.AppendUint32([]byte{'U'}, outboxOID)
	if was != 0 {
		old := insertOf(fmt.Sprint("id-", was), null, null, null, null)
		b = append(append(b, 'K'), old[6:]...)
	}
	return walData(append(b, insertOf(fmt.Sprint("id-", n), "order", "a", "T", fmt.Sprint(n))[5:]...))
}

// logicalMessage returns a logical message that contains a row with key a, id n and payload n.
func logicalMessage(prefix string, lsn pglogrepl.LSN, transactional byte, n int) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'M', transactional}, uint64(lsn))
	b = append(append(b, prefix...), 0)
	content := fmt.Sprintf(`{"id":"id-%d","aggregatetype":"order","aggregateid":"a","type":"T","payload":%d}`, n, n)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return walData(append(b, content...))
}

// keyedRelation is the Relation message of the outbox with its first column as the key.
func keyedRelation() *replication.WALData {
	b := relationOf("id", "aggregatetype", "aggregateid", "type", "payload")
	b[bytes.Index(b, []byte("\x00id\x00"))] = 1
	return walData(b)
}

var errLost = fmt.Errorf("read: %w", replication.ErrUnreachable)

func TestPumpAppliesTheUpdatePolicy(t *testing.T) {
	for policy, tc := range map[encode.Updates]struct {
		sent, level string
	}{
		"":                  {sent: "a/1"},
		encode.UpdateStop:   {sent: "a/1"},
		encode.UpdateIgnore: {sent: "a/1 a/2 a/3 a/4"},
		encode.UpdateWarn:   {sent: "a/1 a/2 a/3 a/4", level: "WARN"},
		encode.UpdateError:  {sent: "a/1 a/2 a/3 a/4", level: "ERROR"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := script{
					keyedRelation(), beginMessage(100), insertMessage("a", 1), updateMessage(1, 0), updateMessage(1, 0), commitMessage(100, 110),
					beginMessage(200), insertMessage("a", 2), updateMessage(3, 2), insertMessage("a", 4), commitMessage(200, 210),
				}
				src, prod := &scriptedSource{script: script, err: errLost}, newScriptedProducer()
				s, log := newTestSessionWith(t, Config{Route: encode.Config{OnUpdate: policy}}, src, prod, 0)
				err := s.run(t.Context())
				var change *pump.ChangeError
				switch stops := tc.sent == "a/1"; {
				case stops && (!errors.As(err, &change) || change.Kind != "UPDATE" || fault.ExitCode(err) != exit.NoDelivery || change.CommitLSN != 100):
					t.Errorf("session ended with %v", err)
				case !stops && !errors.Is(err, errLost):
					t.Errorf("session ended with %v", err)
				}
				if got := prod.records(); got != tc.sent {
					t.Errorf("sent %s, want %s", got, tc.sent)
				}
				// The relay dropped two updates within a minute and logs one line.
				if got := strings.Count(log.String(), "updates dropped"); got != min(len(tc.level), 1) || got > 0 && !strings.Contains(log.String(), "level="+tc.level) {
					t.Errorf("%d lines of dropped updates, want level %q:\n%s", got, tc.level, log)
				}
			})
		})
	}
}

// When Postgres resends an interrupted transaction, each row has the same index as before.
func TestPumpResumesAnInterruptedTransactionOfEveryKindOfRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Route: encode.Config{OnUpdate: encode.UpdateIgnore}, Messages: []string{"rows"}}
		whole := script{
			beginMessage(100), updateMessage(9, 0), logicalMessage("rows", 50, 1, 1), logicalMessage("other", 51, 1, 8),
			updateMessage(2, 9), updateMessage(7, 0), insertMessage("a", 3), updateMessage(4, 3), commitMessage(100, 110),
		}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, cfg, nil, prod, 0)
		for n := 1; n <= len(whole); n++ {
			src := &scriptedSource{script: append(script{keyedRelation()}, whole[:n]...), err: errLost}
			if err := s.next(t.Context(), src); !errors.Is(err, errLost) {
				t.Fatalf("session ended with %v", err)
			}
		}
		s.abandon(errLost)
		if got, want := prod.records(), "a/1 a/2 a/3 a/4"; got != want || s.tracker.Confirmed() != 110 {
			t.Errorf("sent %s and confirmed %s, want %s", got, s.tracker.Confirmed(), want)
		}
		if want := []sink.Position{{CommitLSN: 100}, {CommitLSN: 100, Index: 1}, {CommitLSN: 100, Index: 2}, {CommitLSN: 100, Index: 3}}; !slices.Equal(prod.at, want) {
			t.Errorf("the positions are %v, want %v", prod.at, want)
		}
	})
}

// If the relay publishes messages with any prefix, it still does not publish its own messages, including those of
// earlier versions.
func TestPumpSendsMessagesOfAnyPrefixThatIsNotReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark := walData([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x50" + catalog.MessagePrefix + "\x00\x00\x00\x00\x00")) // empty, not JSON
		src := &scriptedSource{err: errLost, script: script{
			logicalMessage("orders", 50, 0, 1), beginMessage(100), logicalMessage("", 60, 1, 2), logicalMessage(catalog.MessagePrefix, 70, 1, 9),
			logicalMessage("outbox-cdc prune", 75, 1, 9), mark, commitMessage(100, 110), logicalMessage(catalog.MessagePrefix, 120, 0, 9),
			logicalMessage("outbox-cdc prune", 130, 0, 9),
		}}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, Config{Messages: []string{replication.AnyPrefix}}, src, prod, 0)
		if err := s.run(t.Context()); !errors.Is(err, errLost) || prod.records() != "a/1 a/2" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
	})
}

// The relay confirms a non-transactional message by its end position, after Kafka has acknowledged it and every
// earlier record. A transaction that commits at that position is still published.
func TestPumpConfirmsNonTransactionalMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: joinScripts(
			transaction(100, 110, "a", 1),
			script{logicalMessage("rows", 150, 0, 2), keepalive(150), logicalMessage("other", 160, 0, 9), logicalMessage("rows", 200, 0, 3)},
			transaction(200, 210, "a", 4), script{logicalMessage("rows", 220, 0, 5)})}
		prod := newScriptedProducer()
		prod.auto = false
		s, _ := newTestSessionWith(t, Config{Messages: []string{"rows"}}, src, prod, 0)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		for _, want := range []pglogrepl.LSN{0, 110, 150, 200, 210, 220} {
			synctest.Wait()
			if got := s.tracker.Confirmed(); got != want {
				t.Errorf("confirmed %s, want %s", got, want)
			}
			if want != 220 {
				prod.mu.Lock()
				oldest := prod.open[:1]
				prod.open = prod.open[1:]
				prod.mu.Unlock()
				prod.done(oldest, nil)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("session ended with %v", err)
		}
		if got := prod.records(); got != "a/1 a/2 a/3 a/4 a/5" {
			t.Errorf("sent %s", got)
		}
	})
}

// If a message does not contain a valid row, the relay stops and names its position, or sends a dead letter.
func TestPumpStopsAtABadMessageOrSendsADeadLetter(t *testing.T) {
	for name, topic := range map[string]string{"ends": "", "dead letter": "dead"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := logicalMessage("rows", 150, 0, 2)
				bad.Data = append(bytes.Clone(bad.Data[:len(bad.Data)-1]), 'x')
				src := &scriptedSource{script: joinScripts(transaction(100, 110, "a", 1), script{bad}, transaction(200, 210, "a", 3)), err: errLost}
				prod := newScriptedProducer()
				s, _ := newTestSessionWith(t, Config{Messages: []string{"rows"}, DeadLetterTopic: topic}, src, prod, 0)
				err := s.run(t.Context())
				if topic == "" {
					// To skip the message, advance the slot past 0/95: everything before the next byte is then
					// confirmed.
					if fault.ExitCode(err) != exit.BadRecord || !strings.Contains(fault.Advice(err), "'0/95'::pg_lsn + 1") || s.tracker.Confirmed() != 110 {
						t.Errorf("session ended with %v at %s\n%s", err, s.tracker.Confirmed(), fault.Advice(err))
					}
					return
				}
				if got := prod.records(); !errors.Is(err, errLost) || !strings.HasPrefix(got, "a/1 /{") || !strings.HasSuffix(got, "x a/3") || s.tracker.Confirmed() != 210 {
					t.Errorf("sent %s, session ended with %v at %s", got, err, s.tracker.Confirmed())
				}
			})
		})
	}
}

// The relay reads the transactions and messages that end at or before SkipTo, but does not send them. That also
// holds across sessions.
func TestSkipSpansSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{SkipTo: 210, Messages: []string{"rows"}}
		cfg.Route.Names, cfg.Route.Columns, cfg.Route.Topic = kafka.Names{}, encode.DefaultColumns(), "${route}"
		var log bytes.Buffer
		c, err := New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		var sent []string
		var start pglogrepl.LSN
		for _, script := range []script{
			joinScripts(transaction(100, 110, "a", 1), transaction(120, 130, "a")),
			joinScripts(script{logicalMessage("rows", 150, 0, 2), keepalive(160), beginMessage(200), insertMessage("a", 3), insertInto("no topic", "b", 3)}),
			joinScripts(script{beginMessage(200), insertMessage("a", 3), keepalive(250), insertInto("no topic", "b", 3), commitMessage(200, 210)}, transaction(210, 220, "a", 4)),
		} {
			if err := c.skip.StartSession(replication.System{ID: "1"}, start, 0, 1000); err != nil {
				t.Fatal(err)
			}
			prod := newScriptedProducer()
			s := newSessionOf(c, &scriptedSource{script: script, err: errLost}, prod, start)
			if err := s.run(t.Context()); !errors.Is(err, errLost) {
				t.Fatalf("session ended with %v", err)
			}
			start = s.tracker.Confirmed()
			sent = append(sent, prod.sent...)
		}
		if got := strings.Join(sent, " "); got != "a/4" || start != 220 {
			t.Errorf("sent %s and confirmed %s", got, start)
		}
		if !strings.Contains(log.String(), `msg="transactions skipped" name="" slot="" skip_to=0/D2 transactions=3`) {
			t.Errorf("the log is\n%s", log.String())
		}
	})
}

// If the catalog is unavailable, that is not the fault of a row. The session ends with an error of the source.
func TestPumpEndsWithTheSourcesErrorIfTheCatalogDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, prod := &scriptedSource{script: joinScripts(transaction(100, 110, "a", 1))}, newScriptedProducer()
		cfg := Config{DeadLetterTopic: "dead"}
		cfg.Route.Encoding.Key = format.JSONSchema
		s, _ := newTestSessionWith(t, cfg, src, prod, 0)
		s.catalog.describe = func(*decoder.Relation) ([]format.Column, error) {
			return nil, fmt.Errorf("%w: no route to host", replication.ErrUnreachable)
		}
		err := s.run(t.Context())
		if fault.PatienceFor(err) != fault.Outage || fault.ExitCode(err) != exit.Source || prod.records() != "" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
	})
}
