package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// A rig is a Writer and the streamed rows that it has sent.
type rig struct {
	*sinktest.Session
	tb  testing.TB
	seq uint64
	ids []string // by Seq, from 1 on
}

func openSink(tb testing.TB, cfg Config, j *sinktest.Journal) sink.Sink {
	tb.Helper()
	on, err := cfg.Open(sinktest.Context(tb), j.Logger())
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() { _ = on.Close() })
	return on
}

func newRig(tb testing.TB, cfg Config, writer sink.WriterConfig) *rig {
	tb.Helper()
	j := sinktest.NewJournal()
	return &rig{Session: sinktest.StartSession(tb, openSink(tb, cfg, j), j, writer), tb: tb}
}

// row returns the next streamed row of a key.
func (r *rig) row(subject, key string) *sink.Record {
	r.seq++
	id := uuid.NewString()
	r.ids = append(r.ids, id)
	return &sink.Record{
		Seq: r.seq, Topic: subject, Partition: sink.AnyPartition, Key: []byte(key), Value: fmt.Append(nil, r.seq),
		Headers: []sink.Header{{Key: "id", Value: []byte(id)}}, Timestamp: time.Now(), Position: sink.Position{CommitLSN: r.seq},
	}
}

func (r *rig) send(rec *sink.Record) {
	r.tb.Helper()
	if err := r.Writer.Send(sinktest.Context(r.tb), rec); err != nil {
		r.tb.Fatalf("Send: %v\n%s", err, r.Journal)
	}
}

// sendRows sends n rows of several keys.
func (r *rig) sendRows(subject string, n, keys int) {
	r.tb.Helper()
	for i := range n {
		r.send(r.row(subject, fmt.Sprint(i%keys)))
	}
	r.Writer.Flush()
}

func (r *rig) awaitLog(text string) {
	r.tb.Helper()
	r.Await("the log line "+text, func() bool { return strings.Contains(r.Journal.String(), text) })
}

// copies returns how often a stream has each row, by Seq. It fails the test if rows of a key are not in order of their first
// copies.
func (r *rig) copies(c *natstest.Client, stream string) map[uint64]int {
	r.tb.Helper()
	times, last := make(map[uint64]int), make(map[string]uint64)
	for _, m := range c.ReadAll(r.tb, stream) {
		rec := decode(m)
		var seq uint64
		if _, err := fmt.Sscan(string(rec.Value), &seq); err != nil {
			r.tb.Fatalf("message %d: %v", rec.Offset, err)
		}
		if times[seq]++; times[seq] > 1 {
			continue
		}
		if seq < last[string(rec.Key)] {
			r.tb.Errorf("row %d of key %s is behind row %d", seq, rec.Key, last[string(rec.Key)])
		}
		last[string(rec.Key)] = seq
	}
	return times
}

// wantOnce checks that a stream has each acknowledged row once, and no other more than once.
func (r *rig) wantOnce(c *natstest.Client, stream string) {
	r.tb.Helper()
	times := r.copies(c, stream)
	lost, twice := 0, 0
	for seq := uint64(1); seq <= r.seq; seq++ {
		if r.IsAcked(seq) && times[seq] == 0 {
			lost++
		}
		if times[seq] > 1 {
			twice++
		}
	}
	if lost > 0 || twice > 0 {
		r.tb.Errorf("of %d rows, %d are lost and %d are stored several times", r.seq, lost, twice)
	}
}
