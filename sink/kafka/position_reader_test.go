package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// produceKeyed writes records with the given keys and values, in turn, as another program would.
func produceKeyed(tb testing.TB, cl *kgo.Client, keysAndValues ...string) {
	tb.Helper()
	var records []*kgo.Record
	for pair := range slices.Chunk(keysAndValues, 2) {
		rec := &kgo.Record{Topic: "positions", Partition: 0, Key: []byte(pair[0])}
		if pair[1] != "" {
			rec.Value = []byte(pair[1])
		}
		records = append(records, rec)
	}
	if err := cl.ProduceSync(tb.Context(), records...).FirstErr(); err != nil {
		tb.Fatal(err)
	}
}

func wantValues(tb testing.TB, s *positionStore, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, readValues(tb, s)); diff != "" {
		tb.Errorf("values (-want +got):\n%s", diff)
	}
}

// A readLog records the requests with which the topic is read.
type readLog struct {
	mu       sync.Mutex
	fetched  []int64 // the offset of each Fetch
	searched int     // how many ListOffsets asked for the beginning
}

func logReads(c *kfake.Cluster) *readLog {
	l := new(readLog)
	note := func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		l.mu.Lock()
		defer l.mu.Unlock()
		switch req := req.(type) {
		case *kmsg.FetchRequest:
			l.fetched = append(l.fetched, req.Topics[0].Partitions[0].FetchOffset)
		case *kmsg.ListOffsetsRequest:
			if req.Topics[0].Partitions[0].Timestamp == -2 {
				l.searched++
			}
		}
		return nil, nil, false
	}
	c.ControlKey(int16(kmsg.Fetch), note)
	c.ControlKey(int16(kmsg.ListOffsets), note)
	return l
}

// take returns the requests since the last call.
func (l *readLog) take() (fetched []int64, searched int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fetched, searched = l.fetched, l.searched
	l.fetched, l.searched = nil, 0
	return fetched, searched
}

// TestPositionTopicIsFollowed: the first Read reads the topic from its beginning. Each further one goes on
// where the last one ended, and fetches nothing if there is nothing new.
func TestPositionTopicIsFollowed(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	cl, asked := k.Client(t), logReads(k.Control)
	want := func(searched int, fetched ...int64) {
		t.Helper()
		got, n := asked.take()
		if !slices.Equal(got, fetched) || n != searched {
			t.Errorf("fetched from %v, the beginning was searched %d times; want %v, %d", got, n, fetched, searched)
		}
	}
	wantValues(t, s)
	want(1)
	produceKeyed(t, cl, "key/"+firstKey, "1", "key/"+secondKey, "2")
	wantValues(t, s, "1", "2")
	want(0, 0)
	wantValues(t, s, "1", "2")
	want(0)
	produceKeyed(t, cl, "other", "x")
	wantValues(t, s, "1", "2")
	want(0, 2)
	produceKeyed(t, cl, "key/"+firstKey, "3", "key/"+secondKey, "")
	wantValues(t, s, "3")
	want(0, 3)
	produceKeyed(t, cl, "key/position", "4")
	wantValues(t, s, "3", "4")
	want(0, 5)
}

// A copy of a request that a broker stores late, after it has forgotten the producer, does not bring an older position back.
func TestLateCopiesAreNotRead(t *testing.T) {
	var r positionReader
	r.forget()
	for i, tc := range []struct {
		producer int64
		epoch    int16
		first    int32 // sequence of the batch
		delta    int64 // of the record in the batch
		late     bool
	}{
		{7, 0, 0, 0, false},
		{7, 0, 1, 0, false},
		{7, 0, 1, 1, false},
		{7, 0, 1, 0, true},
		{7, 1, 0, 0, false}, // the next epoch counts from 0
		{7, 0, 2, 0, true},
		{7, 1, 0, 0, false}, // the same record again has the same value
		{8, 0, 0, 0, false}, // a later owner with a new producer id
		{7, 1, 1, 0, false},
		{-1, -1, -1, 0, false}, // a program that is not idempotent
		{-1, -1, -1, 0, false},
	} {
		rec := fetchedRecord{&sarama.Record{OffsetDelta: tc.delta}, &sarama.RecordBatch{ProducerID: tc.producer, ProducerEpoch: tc.epoch, FirstSequence: tc.first}}
		if late := r.isLate(rec); late != tc.late {
			t.Errorf("record %d, %+v: late is %t", i, tc, late)
		}
	}
}

// TestKeysOfOthersAreNotRead: a key belongs to the store if it is the name, a slash, and the key of a value.
func TestKeysOfOthersAreNotRead(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	cl := k.Client(t)
	produceKeyed(t, cl, "key/position", "ours 1", "key/"+firstKey, "ours 2", "key/"+secondKey, "ours 3")
	for _, foreign := range []string{
		"", "ke", "key", "key2", "position", "key/positions", "/position", "key2/" + firstKey, "2key", "key/", "key/x", "key" + firstKey, "key_" + firstKey, "key//" + firstKey[1:],
		"key/" + firstKey + "/" + firstKey, "key/" + firstKey + "x", "key/" + firstKey[:35], "key/x" + firstKey[1:],
		"key/" + strings.ReplaceAll(firstKey, "-", ""), "key/{" + firstKey + "}", "key/urn:uuid:" + firstKey,
		"key/" + strings.ReplaceAll(firstKey, "-", "_"),
	} {
		produceKeyed(t, cl, foreign, "not ours", foreign, "")
		produceKeyed(t, cl, foreign, "not ours")
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "positions", Value: []byte("without a key")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(sinktest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []sink.StoredValue{{Key: sink.PositionKey, Value: []byte("ours 1")}, {Key: firstKey, Value: []byte("ours 2")}, {Key: secondKey, Value: []byte("ours 3")}}
	for i := range want {
		want[i].Place = fmt.Sprintf("topic positions, partition 0, offset %d", i)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// TestRoutedRecordsAreNotValues: a record with the key of a value and with headers, as a relay makes of a row,
// neither is a value nor removes one, and is warned of once. The header of a producer whose timestamp was
// not accepted is none of a row.
func TestRoutedRecordsAreNotValues(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, journal := openPositions(t, k.Cluster, "positions", "key")
	cl := k.Client(t)
	produce := func(key string, value []byte, headers ...string) {
		t.Helper()
		rec := &kgo.Record{Topic: "positions", Key: []byte(key), Value: value}
		for _, h := range headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h, Value: []byte("2026-01-01T00:00:00.000Z")})
		}
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	post(t, s, firstKey, []byte("1"))
	produce("key/"+secondKey, []byte("forged"), "id", "eventType")
	produce("key/position", []byte("forged"), "id")
	produce("key/"+firstKey, nil, "id")
	produce("key/"+firstKey, []byte("forged"), "id", sink.TimestampHeader)
	wantValues(t, s, "1")
	produce("key/"+firstKey, []byte("2"), sink.TimestampHeader)
	wantValues(t, s, "2")
	if n := strings.Count(journal.String(), "has headers"); n != 1 || !strings.Contains(journal.String(), "topic positions, partition 0, offset 1") {
		t.Errorf("logged %d times:\n%s", n, journal.String())
	}
}

// A breakableNetwork can close its connections.
type breakableNetwork struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (b *breakableNetwork) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

func (b *breakableNetwork) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// TestRecreatedPositionTopicIsReadAgain: the reader drops the values of the old topic and reads the new one
// from its beginning, whether that has fewer records or more.
func TestRecreatedPositionTopicIsReadAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		records []string
		cut     bool // connections break meanwhile
		want    []string
	}{
		"empty":                      {},
		"fewer records":              {records: []string{"key/" + secondKey, "new"}, want: []string{"new"}},
		"fewer, connections break":   {records: []string{"key/" + secondKey, "new"}, cut: true, want: []string{"new"}},
		"more, connections break":    {records: []string{"x", "x", "key/" + secondKey, "new", "x", "x", "x", "x", "x", "x"}, cut: true, want: []string{"new"}},
		"as many, connections break": {records: []string{"x", "x", "x", "x", "x", "x"}, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
			b, j := new(breakableNetwork), sinktest.NewJournal()
			s, err := openClient(t, Config{Brokers: k.Addrs, Dial: b.connect}, j.Logger()).openPositions(sinktest.Context(t), "positions", "key")
			if err != nil {
				t.Fatal(err)
			}
			produceKeyed(t, k.Client(t), "key/"+firstKey, "old", "key/"+secondKey, "old", "key/position", "old")
			wantValues(t, s, "old", "old", "old")
			if _, err := k.Admin(t).DeleteTopic(t.Context(), "positions"); err != nil {
				t.Fatal(err)
			}
			if _, err := k.Admin(t).CreateTopic(t.Context(), 1, -1, nil, "positions"); err != nil {
				t.Fatal(err)
			}
			if tc.cut {
				b.cut()
			}
			if tc.records != nil {
				produceKeyed(t, k.Client(t), tc.records...)
			}
			wantValues(t, s, tc.want...)
			produceKeyed(t, k.Client(t), "key/position", "newer")
			wantValues(t, s, append(tc.want, "newer")...)
		})
	}
}

// TestEndOfTheCallersTimeIsNoWarning: a broker that did not respond in the time of the caller may be well. The caller gets the error.
func TestEndOfTheCallersTimeIsNoWarning(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		j := sinktest.NewJournal()
		s := l.positions(l.net.DialContext, j)
		produceKeyed(l, l.reader(), "key/position", "old")
		wantValues(l, s, "old")
		heal := l.hangBroker(kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata)
		ctx, cancel := context.WithTimeout(l.Context(), controlTimeout/2)
		defer cancel()
		if _, err := s.Read(ctx); !errors.Is(err, sink.ErrUnreachable) {
			l.Errorf("Read: %v", err)
		}
		if log := j.String(); strings.Contains(log, "kafka request failed") {
			l.Errorf("log: %s", log)
		}
		heal()
		wantValues(l, s, "old")
	}, kfake.SeedTopics(1, "positions"))
}

// TestMissingPositionTopicIsWaitedFor: Read retries until the topic exists again, or the context ends. The
// log does not take that for the first contact.
func TestMissingPositionTopicIsWaitedFor(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		j := sinktest.NewJournal()
		s := l.positions(l.net.DialContext, j)
		admin, cl := l.admin(), l.reader()
		produceKeyed(l, cl, "key/position", "old")
		wantValues(l, s, "old")
		if _, err := admin.DeleteTopic(l.Context(), "positions"); err != nil {
			l.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
		defer cancel()
		if _, err := s.Read(ctx); !errors.Is(err, sink.ErrUnreachable) || !strings.Contains(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION") {
			l.Errorf("Read: %v", err)
		}
		if log := j.String(); strings.Count(log, `level=WARN msg="kafka request failed, retrying"`) != 1 || strings.Contains(log, "not reached yet") {
			l.Errorf("log: %s", log)
		}
		time.AfterFunc(20*time.Second, func() {
			if _, err := admin.CreateTopic(l.Context(), 1, -1, nil, "positions"); err != nil {
				l.Error(err)
			}
		})
		began := time.Now()
		wantValues(l, s)
		if took := bubble.Since(began); took < 20*time.Second || took > 22*time.Second {
			l.Errorf("read after %s", took)
		}
	}, kfake.SeedTopics(1, "positions"))
}

// A read that waits for another one until its context ends says what that one waits for.
func TestReadBehindAnotherRead(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := l.positions(l.net.DialContext, sinktest.NewJournal())
		if _, err := l.admin().DeleteTopic(l.Context(), "positions"); err != nil {
			l.Fatal(err)
		}
		ctx, cancel := context.WithCancel(l.Context())
		first := make(chan error)
		go func() { _, err := s.Read(ctx); first <- err }()
		bubble.Sleep(time.Second)
		limited, stop := context.WithTimeout(l.Context(), time.Second)
		defer stop()
		if _, err := s.Read(limited); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION") {
			l.Errorf("Read: %v", err)
		}
		cancel()
		<-first
	}, kfake.SeedTopics(1, "positions"))
}

// A position topic that somebody deletes while the relay runs must be compacted when it is created again.
func TestAdviceForADeletedPositionTopic(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		j := sinktest.NewJournal()
		s := l.positions(l.net.DialContext, j)
		o, err := s.Own(l.Context())
		if err != nil {
			l.Fatal(err)
		}
		if err := o.Write(l.Context(), sink.PositionKey, []byte("old")); err != nil {
			l.Fatal(err)
		}
		if _, err := l.admin().DeleteTopic(l.Context(), "positions"); err != nil {
			l.Fatal(err)
		}
		written := make(chan error)
		go func() { written <- o.Write(l.Context(), sink.PositionKey, []byte("new")) }()
		bubble.Sleep(time.Minute)
		var stat sink.Stat
		if s.addStat(&stat); !strings.Contains(stat.StallAdvice, "--create --topic positions --partitions 1 --config cleanup.policy=compact; or restart the relay, which creates it") {
			l.Errorf("%+v", stat)
		}
		if _, err := l.admin().CreateTopic(l.Context(), 1, -1, nil, "positions"); err != nil {
			l.Fatal(err)
		}
		if err := <-written; err != nil {
			l.Error(err)
		}
		if log := j.String(); !strings.Contains(log, "topic was re-created") || strings.Contains(log, "replay") {
			l.Error(log)
		}
		wantValues(l, s, "new")
	}, kfake.SeedTopics(1, "positions"))
}

// positions opens a store in the lab, of the name "key" in the topic "positions".
func (l *lab) positions(dial dialFunc, j *sinktest.Journal) *positionStore {
	l.Helper()
	c, err := open(l.Context(), Config{Brokers: l.addrs}, j.Logger(), dial)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close() })
	s, err := c.openPositions(l.Context(), "positions", "key")
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// TestPositionReaderFollowsTheLeader: if the leader has moved, or the connection is lost, Read connects
// again at once and goes on where it was. It logs nothing.
func TestPositionReaderFollowsTheLeader(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "positions"))
	b, j := new(breakableNetwork), sinktest.NewJournal()
	s, err := openClient(t, Config{Brokers: k.Addrs, Dial: b.connect}, j.Logger()).openPositions(sinktest.Context(t), "positions", "key")
	if err != nil {
		t.Fatal(err)
	}
	opened := j.String()
	cl, asked := k.Client(t), logReads(k.Control)
	produceKeyed(t, cl, "key/"+firstKey, "0")
	wantValues(t, s, "0")
	asked.take()
	for i := range 4 {
		if err := k.Control.MoveTopicPartition("positions", 0, int32(i%2)); err != nil {
			t.Fatal(err)
		}
		produceKeyed(t, cl, "key/"+firstKey, fmt.Sprint(i))
		wantValues(t, s, fmt.Sprint(i))
		b.cut()
		produceKeyed(t, cl, "key/"+firstKey, fmt.Sprint("cut ", i))
		wantValues(t, s, fmt.Sprint("cut ", i))
	}
	if fetched, searched := asked.take(); searched != 0 || len(fetched) < 8 || !slices.IsSorted(fetched) || fetched[0] != 1 {
		t.Errorf("fetched from %v, the beginning was searched %d times", fetched, searched)
	}
	if log := strings.TrimPrefix(j.String(), opened); log != "" {
		t.Errorf("log: %s", log)
	}
}

// TestPositionsThatWereRemovedFromTheTopic: if the broker no longer has the offset at which Read goes on,
// Read begins again with what is left.
func TestPositionsThatWereRemovedFromTheTopic(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	cl := k.Client(t)
	produceKeyed(t, cl, "key/"+firstKey, "0", "key/"+secondKey, "1")
	wantValues(t, s, "0", "1")
	third := uuid.NewString()
	produceKeyed(t, cl, "key/"+firstKey, "2", "key/"+third, "3")
	var offsets kadm.Offsets
	offsets.AddOffset("positions", 0, 3, -1)
	if _, err := k.Admin(t).DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	wantValues(t, s, "3")

	produceKeyed(t, cl, "key/"+secondKey, "4")
	asked := logReads(k.Control)
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: 2}) // on the kept connection, and on the next one
	wantValues(t, s, "3", "4")
	if fetched, searched := asked.take(); searched != 2 || fetched[len(fetched)-1] != 3 {
		t.Errorf("fetched from %v, the beginning was searched %d times", fetched, searched)
	}
}

// TestPositionTopicThatWasCreatedAnewAndRefilled: Read notices it although its connection lasts and the new
// topic has as many records as the old one.
func TestPositionTopicThatWasCreatedAnewAndRefilled(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	admin := k.Admin(t)
	produceKeyed(t, k.Client(t), "key/"+firstKey, "0", "key/"+secondKey, "1")
	wantValues(t, s, "0", "1")
	for _, records := range []int{2, 3} {
		if _, err := admin.DeleteTopic(t.Context(), "positions"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, -1, nil, "positions"); err != nil {
			t.Fatal(err)
		}
		var want []string
		cl := k.Client(t)
		for i := range records {
			want = append(want, fmt.Sprint("anew ", i))
			produceKeyed(t, cl, "key/"+uuid.NewString(), want[i])
		}
		wantValues(t, s, want...)
	}
}

// TestInterruptedReadGoesOn: if the connection is lost during the first Read, Read goes on where it was.
func TestInterruptedReadGoesOn(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	cl, asked := k.Client(t), logReads(k.Control)
	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprint(i, incompressible(fetchBytes/2+1000)))
		produceKeyed(t, cl, "key/"+uuid.NewString(), want[i])
	}
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, When: func(req kmsg.Request) bool {
		return req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset > 0
	}})
	if got := readValues(t, s); !slices.Equal(got, want) {
		t.Errorf("%d values", len(got))
	}
	if fetched, searched := asked.take(); searched != 1 || len(fetched) < 3 || fetched[0] != 0 || fetched[1] == 0 || fetched[2] != fetched[1] {
		t.Errorf("fetched from %v, the beginning was searched %d times", fetched, searched)
	}
}

// TestIdlePositionReader: Read replaces a connection that the broker may have closed for idleness before it
// uses it. It then reads all of the topic again, since compaction may have removed a value together with
// its tombstone.
func TestIdlePositionReader(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		zero, policy := "0", compact
		if _, err := l.admin().CreateTopic(l.Context(), 1, -1, map[string]*string{cleanupPolicy: &policy, "delete.retention.ms": &zero}, "positions"); err != nil {
			l.Fatal(err)
		}
		var dials atomic.Int64
		j := sinktest.NewJournal()
		s := l.positions(func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return l.net.DialContext(ctx, network, addr)
		}, j)
		cl, asked := l.reader(), logReads(l.fake)
		third := uuid.NewString()
		produceKeyed(l, cl, "key/"+firstKey, "0")
		produceKeyed(l, cl, "key/"+secondKey, "1")
		wantValues(l, s, "0", "1")
		opened := dials.Load()

		for range 2 {
			bubble.Sleep(idleTimeout - time.Second)
			wantValues(l, s, "0", "1")
		}
		if fetched, _ := asked.take(); dials.Load() != opened || len(fetched) != 1 {
			l.Errorf("%d new connections, fetched from %v", dials.Load()-opened, fetched)
		}

		produceKeyed(l, cl, "key/"+secondKey, "")
		produceKeyed(l, cl, "key/"+third, "3")
		l.fake.Compact()
		bubble.Sleep(idleTimeout + time.Second)
		wantValues(l, s, "0", "3")
		if n := dials.Load() - opened; n != 1 {
			l.Errorf("%d new connections", n)
		}
		if s := j.String(); s != "" {
			l.Errorf("log: %s", s)
		}
	})
}

// TestPositionStoredDuringARead: a value that is stored between the look at the end of the topic and the fetch is
// returned by the next Read.
func TestPositionStoredDuringARead(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	cl := k.Client(t)
	produceKeyed(t, cl, "key/"+firstKey, "1")
	k.Control.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.SleepControl(func() { produceKeyed(t, cl, "key/"+secondKey, "2") })
		return nil, nil, false
	})
	wantValues(t, s, "1")
	wantValues(t, s, "1", "2")
}
