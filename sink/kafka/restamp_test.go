package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// originalTimestamp returns what r says of the timestamp it had, empty if it kept it.
func originalTimestamp(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == sink.TimestampHeader {
			return string(h.Value)
		}
	}
	return ""
}

// TestOldRecordsAreRestamped: a topic that takes no records older than a second gets a backlog all the
// same: at the present time, with the timestamp in a header, in order; and records that are
// young enough as they are. A real broker names every record it does not take.
func TestOldRecordsAreRestamped(t *testing.T) {
	t.Parallel()
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, map[string]string{"message.timestamp.before.max.ms": "1000"})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "warm"))
	r.AwaitAcked(1)
	const n = 5000
	began := time.Now()
	old := time.Date(2026, 3, 1, 12, 30, 0, 123_456_789, time.UTC)
	want := []string{"warm"}
	for i := range n {
		rec := recordFor(topic, 0, fmt.Sprint(i))
		rec.Headers = []sink.Header{{Key: "id", Value: []byte("7")}}
		if i%2 == 0 {
			rec.Timestamp = old.Add(time.Duration(i) * time.Second)
		}
		want = append(want, string(rec.Value))
		r.send(rec)
	}
	r.AwaitAcked(n + 1)
	s := r.client.Stat()
	restamped := r.client.counters.restamped.Load()
	if restamped != n/2 || s.InFlightBytes != 0 || s.InFlightRecords != 0 || s.Retries > 50 {
		t.Errorf("%d records restamped, %d bytes in flight, %d retries", restamped, s.InFlightBytes, s.Retries)
	}
	r.drain()
	log := k.ReadAll(t, topic)
	if got := values(log, 0); !slices.Equal(got, want) {
		t.Fatalf("%d records in the log, want %d in order", len(got), len(want))
	}
	for i, rec := range log[1:] {
		said := ""
		if i%2 == 0 {
			said = old.Add(time.Duration(i) * time.Second).Format("2006-01-02T15:04:05.000Z")
		}
		if got := originalTimestamp(rec); got != said || len(rec.Headers) == 0 || string(rec.Headers[0].Value) != "7" {
			t.Fatalf("record %d has the header %q, want %q", i, got, said)
		}
		if rec.Timestamp.Before(began.Add(-time.Second)) || rec.Timestamp.After(time.Now()) {
			t.Fatalf("record %d has the timestamp %s", i, rec.Timestamp)
		}
	}
	if got := strings.Count(r.Journal.String(), "topic rejects timestamps"); got != 1 {
		t.Errorf("logged %d times: %s", got, r.Journal)
	}
	t.Logf("%d retries", s.Retries)
}

// TestUnnamedOldRecordsAreRestamped: brokers before 2.4 name no record, so all of the batch that are
// not of the present get it.
func TestUnnamedOldRecordsAreRestamped(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("events", 0, "warm"))
		r.AwaitAcked(1)
		synctest.Wait()
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp})
		for i := range 100 {
			rec := recordFor("events", 0, fmt.Sprint(i))
			if i < 40 {
				rec.Timestamp = time.Now().Add(-time.Hour)
			}
			r.send(rec)
		}
		r.drain()
		stamped := 0
		for i, rec := range l.readRecords("events", 101)[1:] {
			if string(rec.Value) != fmt.Sprint(i) {
				l.Fatalf("record %d is %s", i, rec.Value)
			}
			if originalTimestamp(rec) != "" {
				stamped++
			}
		}
		if stamped != 40 || fault.Hits() != 1 {
			l.Errorf("%d records restamped after %d rejections", stamped, fault.Hits())
		}
	}, kfake.SeedTopics(1, "events"))
}

// TestRejectedPresentTimestampRejectsTheRecord: a broker that does not take the present either has the last
// word: the record is refused, and nothing of it is in the log.
func TestRejectedPresentTimestampRejectsTheRecord(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 1, "warm"))
		r.AwaitAcked(1)
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: kerr.InvalidTimestamp, Count: -1})
		rec := recordFor("t", 0, "old")
		rec.Timestamp = time.Now().Add(-time.Hour)
		r.send(rec)
		r.producer.Flush()
		e := wantRecordError(l, r, 2)
		if !strings.Contains(e.Error(), "INVALID_TIMESTAMP") || fault.Hits() != 2 {
			l.Errorf("after %d refusals: %v", fault.Hits(), e)
		}
	}, kfake.SeedTopics(2, "t"))
}
