package owner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// updateMessage returns the update of a row with key a, id n and payload n. was is the old id, or 0 if the id is
// unchanged.
func updateMessage(n, was int) *replication.WALData {
	b := binary.BigEndian.AppendUint32([]byte{'U'}, streamtest.OutboxOID)
	if was != 0 {
		old := streamtest.InsertOf(fmt.Sprint("id-", was), streamtest.Null, streamtest.Null, streamtest.Null, streamtest.Null)
		b = append(append(b, 'K'), old[6:]...)
	}
	return streamtest.WALData(append(b, streamtest.InsertOf(fmt.Sprint("id-", n), "order", "a", "T", fmt.Sprint(n))[5:]...))
}

// logicalMessage returns a logical message that contains a row with key a, id n and payload n.
func logicalMessage(prefix string, lsn pglogrepl.LSN, transactional byte, n int) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'M', transactional}, uint64(lsn))
	b = append(append(b, prefix...), 0)
	content := fmt.Sprintf(`{"id":"id-%d","aggregatetype":"order","aggregateid":"a","type":"T","payload":%d}`, n, n)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return streamtest.WALData(append(b, content...))
}

// keyedRelation is the Relation message of the outbox with its first column as the key.
func keyedRelation() *replication.WALData {
	b := streamtest.RelationOf("id", "aggregatetype", "aggregateid", "type", "payload")
	b[bytes.Index(b, []byte("\x00id\x00"))] = 1
	return streamtest.WALData(b)
}

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
				script := streamtest.Script{
					keyedRelation(), streamtest.Begin(100), streamtest.Insert("a", 1), updateMessage(1, 0), updateMessage(1, 0), streamtest.Commit(100, 110),
					streamtest.Begin(200), streamtest.Insert("a", 2), updateMessage(3, 2), streamtest.Insert("a", 4), streamtest.Commit(200, 210),
				}
				src, prod := &streamtest.Source{Script: script, Err: streamtest.ErrLost}, newScriptedProducer()
				s, log := newTestSessionWith(t, settings{route: encode.Config{OnUpdate: policy}}, src, prod, 0)
				err := s.run(t.Context())
				var change *pump.ChangeError
				switch stops := tc.sent == "a/1"; {
				case stops && (!errors.As(err, &change) || change.Kind != "UPDATE" || fault.ExitCode(err) != exit.NoDelivery || change.CommitLSN != 100):
					t.Errorf("session ended with %v", err)
				case !stops && !errors.Is(err, streamtest.ErrLost):
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
		cfg := settings{route: encode.Config{OnUpdate: encode.UpdateIgnore}, messages: []string{"rows"}}
		whole := streamtest.Script{
			streamtest.Begin(100), updateMessage(9, 0), logicalMessage("rows", 50, 1, 1), logicalMessage("other", 51, 1, 8),
			updateMessage(2, 9), updateMessage(7, 0), streamtest.Insert("a", 3), updateMessage(4, 3), streamtest.Commit(100, 110),
		}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, cfg, nil, prod, 0)
		for n := 1; n <= len(whole); n++ {
			src := &streamtest.Source{Script: append(streamtest.Script{keyedRelation()}, whole[:n]...), Err: streamtest.ErrLost}
			if err := s.next(t.Context(), src); !errors.Is(err, streamtest.ErrLost) {
				t.Fatalf("session ended with %v", err)
			}
		}
		s.abandon(streamtest.ErrLost)
		if got, want := prod.records(), "a/1 a/2 a/3 a/4"; got != want || s.tracker.Confirmed() != 110 {
			t.Errorf("sent %s and confirmed %s, want %s", got, s.tracker.Confirmed(), want)
		}
		if want := []sink.Position{{CommitLSN: 100}, {CommitLSN: 100, Index: 1}, {CommitLSN: 100, Index: 2}, {CommitLSN: 100, Index: 3}}; !slices.Equal(prod.at, want) {
			t.Errorf("the positions are %v, want %v", prod.at, want)
		}
	})
}

// If the relay publishes messages with any prefix, it still does not publish its own messages.
func TestPumpSendsMessagesOfAnyPrefixThatIsNotReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark := streamtest.WALData([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x50" + catalog.MessagePrefix + "\x00\x00\x00\x00\x00")) // empty, not JSON
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			logicalMessage("orders", 50, 0, 1), streamtest.Begin(100), logicalMessage("", 60, 1, 2), logicalMessage(catalog.MessagePrefix, 70, 1, 9),
			mark, streamtest.Commit(100, 110), logicalMessage(catalog.MessagePrefix, 120, 0, 9),
		}}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, settings{messages: []string{replication.AnyPrefix}}, src, prod, 0)
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) || prod.records() != "a/1 a/2" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
	})
}

// The relay confirms a non-transactional message by its end position, after Kafka has acknowledged it and every
// earlier record. A transaction that commits at that position is still published.
func TestPumpConfirmsNonTransactionalMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(
			streamtest.Transaction(100, 110, "a", 1),
			streamtest.Script{logicalMessage("rows", 150, 0, 2), streamtest.Keepalive(150), logicalMessage("other", 160, 0, 9), logicalMessage("rows", 200, 0, 3)},
			streamtest.Transaction(200, 210, "a", 4), streamtest.Script{logicalMessage("rows", 220, 0, 5)})}
		prod := newScriptedProducer()
		prod.auto = false
		s, _ := newTestSessionWith(t, settings{messages: []string{"rows"}}, src, prod, 0)
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
				src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Script{bad}, streamtest.Transaction(200, 210, "a", 3)), Err: streamtest.ErrLost}
				prod := newScriptedProducer()
				s, _ := newTestSessionWith(t, settings{messages: []string{"rows"}, deadLetterTopic: topic}, src, prod, 0)
				err := s.run(t.Context())
				if topic == "" {
					// To skip the message, advance the slot past 0/95: everything before the next byte is then
					// confirmed.
					if fault.ExitCode(err) != exit.BadRecord || !strings.Contains(fault.Advice(err), "'0/95'::pg_lsn + 1") || s.tracker.Confirmed() != 110 {
						t.Errorf("session ended with %v at %s\n%s", err, s.tracker.Confirmed(), fault.Advice(err))
					}
					return
				}
				if got := prod.records(); !errors.Is(err, streamtest.ErrLost) || !strings.HasPrefix(got, "a/1 /{") || !strings.HasSuffix(got, "x a/3") || s.tracker.Confirmed() != 210 {
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
		cfg := settings{skipTo: 210, messages: []string{"rows"}}
		o, log := newTestOwner(t, cfg)
		var sent []string
		var start pglogrepl.LSN
		for _, script := range []streamtest.Script{
			streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(120, 130, "a")),
			streamtest.Join(streamtest.Script{logicalMessage("rows", 150, 0, 2), streamtest.Keepalive(160), streamtest.Begin(200), streamtest.Insert("a", 3), streamtest.InsertInto("no topic", "b", 3)}),
			streamtest.Join(streamtest.Script{streamtest.Begin(200), streamtest.Insert("a", 3), streamtest.Keepalive(250), streamtest.InsertInto("no topic", "b", 3), streamtest.Commit(200, 210)}, streamtest.Transaction(210, 220, "a", 4)),
		} {
			if err := o.cfg.Pump.Skip.StartSession(replication.System{ID: "1"}, start, 0, 1000); err != nil {
				t.Fatal(err)
			}
			prod := newScriptedProducer()
			s := newSessionOf(o, &streamtest.Source{Script: script, Err: streamtest.ErrLost}, prod, start)
			if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
				t.Fatalf("session ended with %v", err)
			}
			start = s.tracker.Confirmed()
			sent = append(sent, prod.sent...)
		}
		if got := strings.Join(sent, " "); got != "a/4" || start != 220 {
			t.Errorf("sent %s and confirmed %s", got, start)
		}
		if !strings.Contains(log.String(), `msg="transactions skipped" skip_to=0/D2 transactions=3`) {
			t.Errorf("the log is\n%s", log.String())
		}
	})
}

// If the catalog is unavailable, that is not the fault of a row. The session ends with an error of the source.
func TestPumpEndsWithTheSourcesErrorIfTheCatalogDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, prod := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1))}, newScriptedProducer()
		cfg := settings{deadLetterTopic: "dead"}
		cfg.route.Encoding.Key = format.JSONSchema
		s, _ := newTestSessionWith(t, cfg, src, prod, 0)
		s.catalog.Describes = func(*decoder.Relation) ([]format.Column, error) {
			return nil, fmt.Errorf("%w: no route to host", replication.ErrUnreachable)
		}
		err := s.run(t.Context())
		if fault.PatienceFor(err) != fault.Outage || fault.ExitCode(err) != exit.Source || prod.records() != "" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
	})
}
