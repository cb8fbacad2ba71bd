package tail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

func newTestTail(t *testing.T, src source, deadLetterTopic string) *Tail {
	t.Helper()
	cfg := relay.Config{Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}, DeadLetterTopic: deadLetterTopic}
	router, err := encode.New(cfg.Route)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	neighbours := pump.NewNeighbours(log)
	neighbours.Update(t.Context(), streamtest.OutboxCatalog(), nil)
	tail := newTail(cfg.WithDefaults(), router, src, neighbours, log)
	tail.published, tail.catalog = &catalog.Publication{Insert: true}, new(streamtest.Catalog)
	return tail
}

// updateOf is insertOf for an updated row.
func updateOf(row ...string) []byte {
	b := streamtest.InsertOf(row...)
	b[0] = 'U'
	return b
}

// describeRow returns a short description of a Row.
func describeRow(t *Row) string {
	text := fmt.Sprintf("%s#%d", t.CommitLSN, t.Index)
	if t.ID != "" {
		text += " " + t.ID
	}
	if t.Record != nil {
		text += fmt.Sprintf(" %s %s/%s", t.Record.Topic, t.Record.Key, t.Record.Value)
	}
	if t.ExitCode != 0 {
		text += fmt.Sprintf(" exit %d", t.ExitCode)
	}
	if t.Reason != "" {
		text += ": " + t.Reason[strings.LastIndex(t.Reason, ":")+2:]
	}
	return text
}

// Tail shows a row that the relay cannot send in its place, with what the relay would do, and continues with the
// next row. It confirms the rows that it has shown, so that the slot does not retain WAL for them.
func TestTailShowsEveryRow(t *testing.T) {
	bad := streamtest.Script{streamtest.Begin(200), streamtest.Insert("a", 2), streamtest.InsertInto("no topic", "a", 3), streamtest.Insert("a", 4), streamtest.Commit(200, 210)}
	changed := streamtest.Script{streamtest.Begin(300), streamtest.WALData(updateOf("id-1", "order", "a", "T", "5")), streamtest.Insert("b", 6), streamtest.Commit(300, 310)}
	for name, test := range map[string]struct {
		deadLetters string
		want        []string
	}{
		"stop": {"", []string{
			"0/64#0 id-1 order a/1", "0/C8#0 id-2 order a/2", "0/C8#1 id-3 exit 14: the topic name contains ' '; Kafka allows letters, digits, '.', '_' and '-'", "0/C8#2 id-4 order a/4",
			"0/12C#-1 exit 13: UPDATE of public.outbox is published, but only INSERTs are events", "0/12C#0 id-6 order b/6",
		}},
		"dead-letter": {"dead", []string{
			"0/64#0 id-1 order a/1", "0/C8#0 id-2 order a/2", "0/C8#1 id-3 dead a/3: the topic name contains ' '; Kafka allows letters, digits, '.', '_' and '-'", "0/C8#2 id-4 order a/4",
			"0/12C#-1 exit 13: UPDATE of public.outbox is published, but only INSERTs are events", "0/12C#0 id-6 order b/6",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1), bad, changed, streamtest.Script{streamtest.Keepalive(400)})}
			ctx, stop := context.WithCancel(t.Context())
			var got []string
			tail := newTestTail(t, src, test.deadLetters)
			err := tail.Run(ctx, func(shown *Row) error {
				got = append(got, describeRow(shown))
				if len(got) == len(test.want) {
					time.AfterFunc(100*time.Millisecond, stop) // after the rest has been read
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !src.Closed || src.Confirmed != 400 {
				t.Errorf("closed %t, %s confirmed", src.Closed, src.Confirmed)
			}
		})
	}
}

// If the table lacks a column, Tail shows an error for each of its rows.
func TestTailShowsEachRowOfATableThatLacksAColumn(t *testing.T) {
	src := &streamtest.Source{Err: errors.New("over"), Script: streamtest.Script{
		streamtest.WALData(streamtest.RelationOf("id", "aggregatetype", "aggregateid", "type")), streamtest.Begin(100),
		streamtest.WALData(streamtest.InsertOf("id-1", "order", "a", "T")), streamtest.WALData(streamtest.InsertOf("id-2", "order", "a", "T")), streamtest.Commit(100, 110),
	}}
	var got []string
	err := newTestTail(t, src, "dead").Run(t.Context(), func(shown *Row) error {
		got = append(got, describeRow(shown))
		return nil
	})
	if err == nil || err.Error() != "over" {
		t.Errorf("the stream ended with %v", err)
	}
	want := []string{"0/64#0 exit 13: id, aggregatetype, aggregateid, type", "0/64#1 exit 13: id, aggregatetype, aggregateid, type"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An error of the show function ends Tail at once. Tail does not confirm the row that was shown last.
func TestTailEndsWithTheErrorOfShow(t *testing.T) {
	src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(200, 210, "a", 2, 3))}
	enough := errors.New("enough")
	n := 0
	err := newTestTail(t, src, "").Run(t.Context(), func(*Row) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 2 || !src.Closed || src.Confirmed != 110 {
		t.Errorf("%v after %d rows, closed %t, %s confirmed", err, n, src.Closed, src.Confirmed)
	}
}

// UntilEnd ends a Tail at the WAL end of its start, even if there are no rows to show.
func TestTailUntilEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script streamtest.Script
		end    pglogrepl.LSN
		want   int
	}{
		"at a commit":       {streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(200, 210, "a", 2), streamtest.Transaction(300, 310, "a", 3)), 210, 2},
		"at a keepalive":    {streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Script{streamtest.Keepalive(400)}, streamtest.Transaction(500, 510, "a", 2)), 350, 1},
		"with nothing left": {streamtest.Join(streamtest.Script{streamtest.Keepalive(400)}, streamtest.Transaction(500, 510, "a", 1)), 350, 0},
	} {
		t.Run(name, func(t *testing.T) {
			src := &streamtest.Source{Script: test.script}
			tail := newTestTail(t, src, "")
			tail.walEnd = test.end
			tail.UntilEnd()
			shown := 0
			err := tail.Run(t.Context(), func(*Row) error { shown++; return nil })
			if err != nil || shown != test.want || !src.Closed {
				t.Errorf("%v, %d rows shown of %d, closed %t", err, shown, test.want, src.Closed)
			}
		})
	}
}

// Tail ends if it cannot decode a message.
func TestTailEndsAtBytesItCannotDecode(t *testing.T) {
	src := &streamtest.Source{Script: streamtest.Script{streamtest.WALData([]byte("?"))}}
	err := newTestTail(t, src, "dead").Run(t.Context(), func(*Row) error { return nil })
	if err == nil || fault.ExitCode(err) != exit.Unexpected || !src.Closed {
		t.Errorf("%v, closed %t", err, src.Closed)
	}
}

// A watchedSource reports concurrently whether it has been closed.
type watchedSource struct {
	streamtest.Source
	gone atomic.Bool
}

func (s *watchedSource) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	s.gone.Store(true)
	return s.Source.Close(ctx, confirmed)
}

// Tail releases the slot if the show function has blocked for a minute.
func TestTailClosesTheSlotIfNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &watchedSource{Source: streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1))}}
		began := time.Now()
		resume := make(chan struct{})
		ended := make(chan error, 1)
		tail := newTestTail(t, src, "")
		go func() {
			ended <- tail.Run(t.Context(), func(*Row) error { <-resume; return nil })
		}()
		bubble.Sleep(showTimeout - time.Millisecond)
		if synctest.Wait(); src.gone.Load() {
			t.Error("closed too early")
		}
		bubble.Sleep(time.Millisecond)
		if synctest.Wait(); !src.gone.Load() {
			t.Errorf("not closed after %s", bubble.Since(began))
		}
		close(resume)
		if err := <-ended; !errors.Is(err, errNotShown) {
			t.Errorf("ended with %v", err)
		}
	})
}
