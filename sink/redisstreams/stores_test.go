package redisstreams

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// Records are read as they were written, with nulls, and with names of headers that are those of other fields.
func TestEntries(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true})
	stream := redistest.UniqueName(t)
	at := time.UnixMilli(1_700_000_000_123).UTC()
	header := func(key, value string) sink.Header { return sink.Header{Key: key, Value: []byte(value)} }
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := []sink.Record{
		{Key: []byte("k"), Value: all, Headers: []sink.Header{header("id", "1"), header("id", "2"), {Key: "null"}, header("empty", "")}},
		{Headers: []sink.Header{header("key", "k"), header("payload", "p"), header("timestamp", "t"), header("header.x", "h"), header("null.x", "n"), {Key: "null.y"}, {Key: "key"}}},
		{Key: []byte{}, Value: []byte{}, Headers: []sink.Header{header("", "no name")}},
		{Key: []byte(strings.Repeat("k", 300)), Value: []byte(strings.Repeat("v", 70_000)), Headers: []sink.Header{header(strings.Repeat("n", 40), "x")}},
	}
	for i := range want {
		want[i].Topic, want[i].Timestamp = stream, at
	}
	send(t, s, slices.Clone(want)...)
	reader, err := s.cfg.OpenReader(sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ranges, err := reader.OffsetRanges(sinktest.Context(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]sink.OffsetRange{{End: 4}}, ranges[stream]); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	var got []sink.Record
	if err := reader.Read(sinktest.Context(t), stream, ranges[stream][0], func(r *sink.StoredRecord) error {
		got = append(got, r.Record)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// A reader reads many pages, each entry of its ranges once, also if the stream is trimmed and grows meanwhile.
func TestReaderPages(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	admin, ctx := server.Admin(), sinktest.Context(t)
	stream := redistest.UniqueName(t)
	add := func(from, to int) {
		t.Helper()
		pipe := admin.Pipeline()
		for i := from; i < to; i++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: fmt.Sprintf("%d-7", i+1), Values: []any{"payload", i}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	const n = 2*pageEntries + 10
	add(0, n)
	reader, err := Config{Addrs: []string{server.Addr()}}.OpenReader(sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ranges, err := reader.OffsetRanges(ctx, stream)
	if err != nil || !slices.Equal(ranges[stream], []sink.OffsetRange{{End: n}}) {
		t.Fatalf("%v, %v", ranges, err)
	}
	read := func(offsets sink.OffsetRange) (got []string) {
		t.Helper()
		last := int64(-1)
		if err := reader.Read(ctx, stream, offsets, func(r *sink.StoredRecord) error {
			if r.Offset <= last || r.Offset < offsets.Begin || r.Offset >= offsets.End {
				t.Errorf("offset %d after %d", r.Offset, last)
			}
			last = r.Offset
			got = append(got, string(r.Value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(sink.OffsetRange{Begin: 5, End: n - 3}); len(got) != n-8 || got[0] != "5" || got[len(got)-1] != strconv.Itoa(n-4) {
		t.Errorf("%d records from %s to %s", len(got), got[0], got[len(got)-1])
	}
	add(n, n+20)
	if err := admin.XTrimMaxLen(ctx, stream, n).Err(); err != nil {
		t.Fatal(err)
	}
	if got := read(ranges[stream][0]); len(got) != n-20 || got[0] != "20" || got[len(got)-1] != strconv.Itoa(n-1) {
		t.Errorf("%d records from %s to %s", len(got), got[0], got[len(got)-1])
	}
}

// The offset of a dead letter is derived from its id alone.
func TestOffsets(t *testing.T) {
	last := int64(-1)
	for _, id := range []string{"0-1", "0-2", "0-4611686018427387903", "1-0", "1700000000000-0", "1700000000000-1", "1700000000001-0", "4398046511103-1048575"} {
		offset, err := offsetOf(id)
		if err != nil || offset <= last || idOf(offset) != id {
			t.Errorf("%s has the offset %d after %d, which is of %s: %v", id, offset, last, idOf(offset), err)
		}
		last = offset
	}
	for _, id := range []string{"", "x", "0-4611686018427387904", "4398046511104-0", "5-1048576"} {
		if offset, err := offsetOf(id); !errors.Is(err, sink.ErrFatal) {
			t.Errorf("%q has the offset %d: %v", id, offset, err)
		}
	}
}

// Trimming keeps what it must, and spares the streams of Keep.
func TestTrim(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"stream-node-max-entries": "10"}})
	for name, trim := range map[string]Trim{"number": {MaxLen: 100}, "WAL": {MaxWAL: 100}} {
		t.Run(name, func(t *testing.T) {
			trimmed, kept := redistest.UniqueName(t), redistest.UniqueName(t)
			trim.Keep = []string{kept}
			s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true, Trim: trim})
			for batch := range 20 {
				var records []sink.Record
				for i := range 50 {
					n := batch*50 + i
					records = append(records, event(trimmed, n, uint64(1000+n), 0), event(kept, n, uint64(1000+n), 0))
				}
				send(t, s, records...)
			}
			got := ids(t, server.Admin(), trimmed)
			if len(got) < 100 || len(got) > 250 || got[len(got)-1] != "1999-0" {
				t.Errorf("%d entries from %s to %s are left", len(got), got[0], got[len(got)-1])
			}
			if n := len(ids(t, server.Admin(), kept)); n != 1000 {
				t.Errorf("%d of 1000 entries are left in a stream that is not trimmed", n)
			}
		})
	}
}

// Records that the server cannot store are rejected before they are sent.
func TestLimits(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"proto-max-bulk-len": "1mb"}})
	s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true})
	stream := redistest.UniqueName(t)
	fits := event(stream, 1, 1, 0)
	fits.Value = make([]byte, 1<<20-300)
	many := event(stream, 2, 2, 0)
	for range maxHeaders - 1 {
		many.Headers = append(many.Headers, sink.Header{Key: "h", Value: []byte("v")})
	}
	send(t, s, fits, many)
	large, tooMany := event(stream, 3, 3, 0), event(stream, 4, 4, 0)
	large.Value = make([]byte, 1<<20)
	tooMany.Headers = append(slices.Clone(many.Headers), many.Headers[0])
	for name, r := range map[string]sink.Record{"bytes": large, "headers": tooMany} {
		w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
		_ = w.Writer.Send(sinktest.Context(t), &r)
		w.Writer.CloseSend()
		if e, ok := errors.AsType[*sink.RecordError](w.Wait()); !ok || e.TooLarge != (name == "bytes") {
			t.Errorf("%s: %v", name, w.Wait())
		}
	}
	if n := len(ids(t, server.Admin(), stream)); n != 2 {
		t.Errorf("%d entries are stored, want 2", n)
	}
}

// check explains what the settings of the server promise.
func TestInspect(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Users: map[string]string{"poor": ">x ~* +eval +xlen +exists"}})
	admin, ctx := server.Admin(), sinktest.Context(t)
	stream, text := redistest.UniqueName(t), redistest.UniqueName(t)
	createStream(t, admin, stream)
	if err := admin.Set(ctx, text, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Addrs: []string{server.Addr()}}
	huge := &sink.Record{Headers: slices.Repeat([]sink.Header{{Value: make([]byte, 1<<20)}}, 1<<10)}
	use := sink.Use{Destinations: []sink.Destination{{Name: stream}, {Name: "nobody", Largest: huge}}, Positions: text}
	find := func(cfg Config, condition, object string) sink.Finding {
		t.Helper()
		findings := sinktest.Inspect(ctx, t, cfg, use)
		for _, f := range findings {
			if f.Condition == condition && f.Object == object {
				return f
			}
		}
		t.Errorf("no finding about %s %s: %+v", condition, object, findings)
		return sink.Finding{}
	}
	want := func(cfg Config, condition, object string, state sink.State, text string) {
		t.Helper()
		if f := find(cfg, condition, object); f.State != state || !strings.Contains(f.Found, text) || (f.State == sink.Met) != (f.Fix == "") {
			t.Errorf("%s %s: %+v", condition, object, f)
		}
	}
	set := func(pairs ...string) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if err := admin.ConfigSet(ctx, pairs[i], pairs[i+1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(cfg, "connection", "", sink.Met, "")
	want(cfg, "version", "", sink.Met, "7")
	want(cfg, "persistence", "", sink.Doubt, "appendonly is no")
	want(cfg, "eviction", "", sink.Met, "noeviction")
	want(cfg, "stream", stream, sink.Met, "exists")
	want(cfg, "stream", "nobody", sink.Failed, "does not exist")
	want(cfg, "entry size", "nobody", sink.Failed, "1073741824")
	if f := find(cfg, "position store", text); f.State != sink.Failed || !strings.Contains(f.Found, "WRONGTYPE") {
		t.Errorf("%+v", f)
	}
	creating, waiting, poor := cfg, cfg, cfg
	creating.CreateStreams = true
	want(creating, "stream", "nobody", sink.Met, "creates it")
	waiting.Wait.Replicas = 1
	want(waiting, "replicas", "", sink.Failed, "no record is acknowledged")
	set("appendonly", "yes", "appendfsync", "everysec", "maxmemory-policy", "allkeys-lru", "maxmemory", "1000000000")
	want(cfg, "persistence", "", sink.Doubt, "two seconds")
	want(cfg, "eviction", "", sink.Failed, "allkeys-lru")
	want(cfg, "memory", "", sink.Met, "1000000000")
	set("appendfsync", "always", "maxmemory", "1")
	want(cfg, "persistence", "", sink.Met, "on disk")
	want(cfg, "memory", "", sink.Doubt, "in use")
	poor.Credentials = relayLogin
	if f := find(poor, "connection", ""); f.State != sink.Failed || !strings.Contains(f.Found, "WRONGPASS") {
		t.Errorf("%+v", f)
	}
}

// Rows may choose any number of streams: what is remembered of them is limited.
func TestManyStreams(t *testing.T) {
	tr := &transport{last: make(map[string]string)}
	for i := range 2 * maxLast {
		tr.remember(fmt.Sprint(i), "1-1")
	}
	if newest := fmt.Sprint(2*maxLast - 1); len(tr.last) > maxLast || tr.last[newest] == "" {
		t.Errorf("%d streams are remembered", len(tr.last))
	}
}

// A server that has lost the positions, and with them the owner, is no other owner.
func TestPositionsAreRemoved(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := openSink(t, Config{Addrs: []string{server.Addr()}})
	hash := redistest.UniqueName(t)
	store, err := s.OpenPositions(sinktest.Context(t), hash, "relay")
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.Own(sinktest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Write(sinktest.Context(t), sink.PositionKey, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.conns.Del(t.Context(), hash).Err(); err != nil {
		t.Fatal(err)
	}
	err = o.Write(sinktest.Context(t), sink.PositionKey, []byte("2"))
	if !errors.Is(err, sink.ErrSuperseded) || strings.Contains(err.Error(), "newer owner") || !strings.Contains(sink.AdviceOf(err), "replay") {
		t.Errorf("%v, advice %q", err, sink.AdviceOf(err))
	}
}
