package redisstreams

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// readStream returns the entries of a stream, each with its ordinal as the offset.
func readStream(tb testing.TB, c redis.UniversalClient, stream string) (records []sink.StoredRecord) {
	tb.Helper()
	for i, e := range entriesOf(tb, c, stream) {
		records = append(records, sink.StoredRecord{Record: parseEntry(stream, e.fields), Offset: int64(i)})
	}
	return records
}

func entriesOf(tb testing.TB, c redis.UniversalClient, stream string) []entry {
	tb.Helper()
	reply, err := c.Do(sinktest.Context(tb), "xrange", stream, "-", "+").Slice()
	if err != nil {
		tb.Fatal(err)
	}
	entries, err := parseEntries(reply)
	if err != nil {
		tb.Fatal(err)
	}
	return entries
}

// ids returns the ids of the entries of a stream.
func ids(tb testing.TB, c redis.UniversalClient, stream string) (ids []string) {
	tb.Helper()
	for _, e := range entriesOf(tb, c, stream) {
		ids = append(ids, e.id)
	}
	return ids
}

// payloads returns the payloads of the entries of a stream.
func payloads(tb testing.TB, c redis.UniversalClient, stream string) (payloads []string) {
	tb.Helper()
	for _, r := range readStream(tb, c, stream) {
		payloads = append(payloads, string(r.Value))
	}
	return payloads
}

func openSink(tb testing.TB, cfg Config) *client {
	tb.Helper()
	s, err := cfg.Open(sinktest.Context(tb), sinktest.NewJournal().Logger())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s.(*client)
}

// event returns a record of the row with an event id and a position.
func event(stream string, n int, lsn uint64, index int) sink.Record {
	return sink.Record{
		Seq: uint64(n), Topic: stream, Partition: sink.AnyPartition, Key: []byte("k"), Value: []byte(strconv.Itoa(n)),
		Headers:   []sink.Header{{Key: "id", Value: fmt.Appendf(nil, "event %d", n)}},
		Timestamp: time.UnixMilli(1_700_000_000_000), Position: sink.Position{CommitLSN: lsn, Index: index},
	}
}

// send writes records with a new Writer.
func send(tb testing.TB, s sink.Sink, records ...sink.Record) {
	tb.Helper()
	w := sinktest.StartSession(tb, s, sinktest.NewJournal(), sink.WriterConfig{})
	for i := range records {
		records[i].Seq = uint64(i + 1)
		if err := w.Writer.Send(sinktest.Context(tb), &records[i]); err != nil {
			tb.Fatal(err)
		}
	}
	w.Drain(len(records))
}

// A subject is a Redis server for package sinktest. It injects faults into the connections of the client.
type subject struct {
	server *redistest.Server
	cfg    Config
	faults sinktest.ConnFaults
}

func newSubject(server *redistest.Server, cfg Config) *subject {
	return &subject{server: server, cfg: cfg, faults: sinktest.ConnFaults{IsWrite: isScript}}
}

// isScript reports whether b has the call of a script.
func isScript(b []byte) bool { return bytes.Contains(b[:min(len(b), 100)], []byte("eval")) }

const subjectLimit = 20_000

func (s *subject) Broker(window int) sink.Broker {
	cfg := s.cfg
	cfg.Addrs, cfg.WindowRecords, cfg.MaxEntryBytes, cfg.Dial = []string{s.server.Addr()}, window, subjectLimit, s.faults.Dial
	return cfg
}

func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	stream := redistest.UniqueName(t)
	createStream(t, s.server.Admin(), stream)
	return stream
}

func createStream(t *testing.T, c redis.UniversalClient, stream string) {
	t.Helper()
	ctx := sinktest.Context(t)
	if err := c.XGroupCreateMkStream(ctx, stream, "test", "0").Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Del(context.WithoutCancel(ctx), stream) })
}

func (s *subject) Store(t *testing.T) string {
	t.Helper()
	name := redistest.UniqueName(t)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { s.server.Admin().Del(ctx, name) })
	return name
}

func (s *subject) Read(t *testing.T, stream string) []sink.StoredRecord {
	t.Helper()
	return readStream(t, s.server.Admin(), stream)
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = slices.Concat(rec.Value, make([]byte, 2*subjectLimit))
}

func (s *subject) Hold() sinktest.Fault {
	return s.faults.Hold()
}

func (s *subject) Faults() []sinktest.Fault {
	return []sinktest.Fault{
		s.faults.Cut(),
		s.faults.Lose(),
		s.setting("the memory is full", "maxmemory", "1", "0"),
		s.setting("too few replicas are connected", "min-replicas-to-write", "1", "0"),
		{Name: "the server forgets the scripts", Begin: func(t *testing.T) (<-chan struct{}, func()) {
			t.Helper()
			met := make(chan struct{})
			if err := s.server.Admin().ScriptFlush(sinktest.Context(t)).Err(); err != nil {
				t.Fatal(err)
			}
			close(met)
			return met, func() {}
		}},
	}
}

// setting is a fault that a setting of the server causes. It meets a write when the server has counted an error.
func (s *subject) setting(name, setting, bad, good string) sinktest.Fault {
	return sinktest.Fault{Name: name, Begin: func(t *testing.T) (<-chan struct{}, func()) {
		t.Helper()
		ctx, admin := sinktest.Context(t), s.server.Admin()
		before := errorCount(t, admin)
		if err := admin.ConfigSet(ctx, setting, bad).Err(); err != nil {
			t.Fatal(err)
		}
		met, healed := make(chan struct{}), make(chan struct{})
		go func() {
			for errorCount(t, admin) == before {
				select {
				case <-healed:
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
			close(met)
		}()
		return met, sync.OnceFunc(func() {
			close(healed)
			if err := admin.ConfigSet(ctx, setting, good).Err(); err != nil {
				t.Error(err)
			}
		})
	}}
}

// errorCount returns the number of OOM and NOREPLICAS errors of a server.
func errorCount(t *testing.T, c *redis.Client) string {
	t.Helper()
	info, _ := c.Info(context.WithoutCancel(t.Context()), "errorstats").Result()
	return info
}

func securedConfig(server *redistest.Server, login func(context.Context) (string, string, error)) Config {
	return Config{
		Addrs: []string{server.Addr()}, CreateStreams: true, Credentials: login,
		TLS: func() (*tls.Config, error) { return server.TLSConfig(), nil },
	}
}
