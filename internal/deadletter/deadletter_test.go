package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) {
	leak.VerifyTestMain(m)
}

// A fixture is a topic of events and a dead-letter topic.
type fixture struct {
	kafka                  *kafkatest.FakeCluster
	client                 *kgo.Client
	cfg                    relay.Config
	topic, deadLetterTopic string
	log                    *slog.Logger
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	p := &fixture{kafka: kafkatest.Fake(t), log: slog.New(slog.DiscardHandler)}
	p.client = p.kafka.Client(t)
	p.topic = p.kafka.Topic(t, 3, map[string]string{"max.message.bytes": "1000"})
	p.deadLetterTopic = p.kafka.Topic(t, 2, nil)
	p.cfg = relay.Config{Sink: kafka.Config{Brokers: p.kafka.Addrs}, Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()}}
	return p
}

// addDeadLetter adds a dead letter: record n with a value of size bytes.
func (p *fixture) addDeadLetter(t *testing.T, n, size int) {
	t.Helper()
	rec := &sink.Record{
		Topic: p.topic, Partition: 1, Key: fmt.Append(nil, "key ", n%2), Value: []byte(strings.Repeat("x", size)),
		Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, n)}}, Timestamp: time.UnixMilli(int64(n)),
	}
	dead := encode.DeadRecord(p.deadLetterTopic, encode.Origin{Slot: "s", Index: n}, rec, fmt.Sprint("reason ", n))
	p.produce(t, &kgo.Record{Key: dead.Key, Value: dead.Value, Timestamp: dead.Timestamp}, dead.Headers)
}

// produce writes to the dead-letter topic.
func (p *fixture) produce(t *testing.T, rec *kgo.Record, headers []sink.Header) {
	t.Helper()
	rec.Topic = p.deadLetterTopic
	for _, h := range headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	if err := p.client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (p *fixture) open(t *testing.T) *Topic {
	t.Helper()
	b, err := Open(t.Context(), p.cfg.Sink, p.deadLetterTopic, p.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (p *fixture) selectAll(t *testing.T, b *Topic, f Filter) *Selection {
	t.Helper()
	s, err := b.Select(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// indexes returns the record numbers of the dead letters in a Selection.
func (p *fixture) indexes(t *testing.T, b *Topic, s *Selection) (all []int) {
	t.Helper()
	if err := b.Read(t.Context(), s, func(l *DeadLetter) error {
		all = append(all, l.Index)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// deadLetter returns the dead letter of record n.
func (p *fixture) deadLetter(t *testing.T, b *Topic, n int) *DeadLetter {
	t.Helper()
	var found *DeadLetter
	if err := b.Read(t.Context(), p.selectAll(t, b, Filter{}), func(l *DeadLetter) error {
		if l.Index == n {
			found = l
		}
		return nil
	}); err != nil || found == nil {
		t.Fatalf("dead letter %d: %v, %v", n, found, err)
	}
	return found
}

// resender returns a Resender with the dead letters of a Selection, and the outcomes that it reports.
func (p *fixture) resender(t *testing.T, b *Topic, s *Selection, dryRun bool) (*Resender, *[]Outcome) {
	t.Helper()
	client, err := p.cfg.Sink.Open(t.Context(), p.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	builder, err := rows.NewRecordBuilder(t.Context(), p.cfg.Rows())
	if err != nil {
		t.Fatal(err)
	}
	outcomes := new([]Outcome)
	r := NewResender(client, p.deadLetterTopic, time.Second, dryRun, func(o Outcome) { *outcomes = append(*outcomes, o) })
	if err := b.Read(t.Context(), s, func(l *DeadLetter) error {
		rec, err := builder.Build(t.Context(), &l.DeadLetter, p.deadLetterTopic+"/"+l.String())
		if err != nil {
			return err
		}
		parking := ""
		if l.Parked != nil {
			parking = l.Parked.Parking
		}
		return r.Add(t.Context(), l.PartitionOffset, parking, rec)
	}); err != nil {
		t.Fatal(err)
	}
	return r, outcomes
}

// TestSelectionLeavesOutResentDeadLetters: a Selection does not contain dead letters that were resent, or other
// records of the topic.
func TestSelectionLeavesOutResentDeadLetters(t *testing.T) {
	p := newFixture(t)
	for n := range 6 {
		p.addDeadLetter(t, n, 10)
		p.produce(t, &kgo.Record{Key: []byte("key 0"), Value: []byte("something else")}, nil)
		written := time.Now().UnixMilli()
		wait.For(t, "another time for the next one", func() bool { return time.Now().UnixMilli() > written })
	}
	b := p.open(t)
	s := p.selectAll(t, b, Filter{})
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	s.KeepNewest(2)
	if diff := cmp.Diff([]int{4, 5}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("the newest (-want +got):\n%s", diff)
	}
	s = p.selectAll(t, b, Filter{Reason: "REASON 3"})
	offset := s.matches[0].PartitionOffset
	if diff := cmp.Diff([]int{3}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("by reason (-want +got):\n%s", diff)
	}
	sent := func(n int) time.Time { return p.deadLetter(t, b, n).At }
	for _, tt := range []struct {
		name   string
		filter Filter
		want   []int
	}{
		{"topic", Filter{Topic: p.topic}, []int{0, 1, 2, 3, 4, 5}},
		{"another topic", Filter{Topic: "nobody"}, nil},
		{"since", Filter{Since: sent(4)}, []int{4, 5}},
		{"since, of a reason", Filter{Since: sent(4), Reason: "reason 4"}, []int{4}},
		{"since a later time", Filter{Since: sent(5).Add(time.Millisecond)}, nil},
	} {
		if diff := cmp.Diff(tt.want, p.indexes(t, b, p.selectAll(t, b, tt.filter))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	resent, err := newResentRecord(p.deadLetterTopic, offset, p.topic, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.produce(t, &kgo.Record{Key: resent.Key, Value: resent.Value}, resent.Headers) // to the partition that its key selects
	again := p.selectAll(t, b, Filter{})
	foreign := PartitionOffset{1 - offset.Partition, offset.Offset}
	if n := again.Len() + again.AlreadyResent; n != 6 {
		t.Errorf("%d dead letters, %d resent; a record of another partition than %s counts", again.Len(), again.AlreadyResent, foreign)
	}
	for at, says := range map[PartitionOffset]string{{9, 0}: "the topic has 2 partitions", {offset.Partition, 99}: "the last offset of partition", foreign: ""} {
		_, err := b.Select(t.Context(), Filter{Offsets: []PartitionOffset{at}, Reason: "no dead letter has this"})
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// A row that could not become a record has no topic. If it has parked a key, it is one of the key's topic.
func TestSelectionByTopicHasTheRowThatParkedAKey(t *testing.T) {
	p := newFixture(t)
	p.addDeadLetter(t, 0, 10)
	for n, parking := range map[int]string{1: "mine", 2: "other", 3: ""} {
		headers := []sink.Header{
			{Key: encode.DeadLetterReason, Value: []byte("no id")},
			{Key: encode.DeadLetterTable, Value: []byte("outbox")},
			{Key: encode.DeadLetterLSN, Value: []byte("0/1")},
			{Key: encode.DeadLetterIndex, Value: fmt.Append(nil, n)},
			{Key: encode.DeadLetterAt, Value: time.Now().AppendFormat(nil, time.RFC3339Nano)},
		}
		dead := &sink.Record{Headers: headers}
		if parking != "" {
			dead = encode.Park(dead, []byte("key"), encode.Parked{Parking: parking, Place: encode.Place{LSN: 1, Index: n}})
		}
		p.produce(t, &kgo.Record{Key: dead.Key}, dead.Headers)
	}
	b := p.open(t)
	f := Filter{Topic: p.topic, Parked: func(context.Context) (*parking.Record, time.Time, error) {
		return &parking.Record{Parkings: []parking.Parking{{ID: "mine", Key: parking.Key{Topic: p.topic}}, {ID: "other", Key: parking.Key{Topic: "another"}}}}, time.Time{}, nil
	}}
	if got := p.indexes(t, b, p.selectAll(t, b, f)); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("dead letters %v of topic %s", got, p.topic)
	}
	if f.Topic = "another"; !slices.Equal(p.indexes(t, b, p.selectAll(t, b, f)), []int{2}) {
		t.Error("the row of a key of another topic is not found")
	}
}

// TestResendKeepsRejectedDeadLetters: dead letters that Kafka still rejects stay. All others arrive once, in order
// per key, and a second resend sends none.
func TestResendKeepsRejectedDeadLetters(t *testing.T) {
	p := newFixture(t)
	const n = 700 // more than a batch
	var refused []int
	for i := range n {
		size := 10
		if i%100 == 50 {
			size = 2000
			refused = append(refused, i)
		}
		p.addDeadLetter(t, i, size)
	}
	b := p.open(t)
	r, outcomes := p.resender(t, b, p.selectAll(t, b, Filter{}), false)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stay := 0
	for _, o := range *outcomes {
		if o.Err == nil {
			continue
		}
		stay++
		if _, ok := errors.AsType[*sink.RecordError](o.Err); !ok {
			t.Errorf("%s: %v", o.PartitionOffset, o.Err)
		}
	}
	if len(*outcomes) != n || stay != len(refused) {
		t.Errorf("%d outcomes, %d of them rejections", len(*outcomes), stay)
	}
	left := p.selectAll(t, b, Filter{})
	if diff := cmp.Diff(refused, p.indexes(t, b, left)); diff != "" || left.AlreadyResent != n-len(refused) {
		t.Errorf("%d are resent; left (-want +got):\n%s", left.AlreadyResent, diff)
	}
	records := p.kafka.ReadAll(t, p.topic)
	last := map[string]int64{"key 0": -1, "key 1": -1}
	for _, rec := range records {
		if at := rec.Timestamp.UnixMilli(); at <= last[string(rec.Key)] {
			t.Fatalf("%s: %d behind %d", rec.Key, at, last[string(rec.Key)])
		}
		last[string(rec.Key)] = rec.Timestamp.UnixMilli()
		if h := rec.Headers[len(rec.Headers)-1]; h.Key != rows.ResentFromHeader || !strings.HasPrefix(string(h.Value), p.deadLetterTopic+"/") {
			t.Fatalf("headers %v", rec.Headers)
		}
	}
	if len(records) != n-len(refused) {
		t.Errorf("%d records", len(records))
	}
}

// No record overtakes one of its parking that Kafka rejects.
func TestResendHoldsRecordsBehindARejectedOne(t *testing.T) {
	p := newFixture(t)
	for n, of := range []struct {
		parking string
		size    int
	}{{"a", 10}, {"a", 2000}, {"b", 10}, {"a", 10}, {"", 2000}, {"b", 10}, {"a", 2000}, {"", 10}} {
		rec := &sink.Record{Topic: p.topic, Partition: sink.AnyPartition, Key: []byte("key " + of.parking), Value: make([]byte, of.size), Timestamp: time.UnixMilli(int64(n))}
		dead := encode.DeadRecord(p.deadLetterTopic, encode.Origin{Index: n}, rec, "bad")
		if of.parking != "" {
			dead = encode.Park(dead, rec.Key, encode.Parked{Parking: of.parking, Place: encode.Place{LSN: 1, Index: n}})
		}
		p.produce(t, &kgo.Record{Key: dead.Key, Value: dead.Value, Timestamp: dead.Timestamp}, dead.Headers)
	}
	b := p.open(t)
	s := p.selectAll(t, b, Filter{Resent: true})
	r, outcomes := p.resender(t, b, s, false)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	index := make(map[PartitionOffset]int)
	if err := b.Read(t.Context(), s, func(l *DeadLetter) error { index[l.PartitionOffset] = l.Index; return nil }); err != nil {
		t.Fatal(err)
	}
	got := make(map[int]string)
	for _, o := range *outcomes {
		_, rejected := errors.AsType[*sink.RecordError](o.Err)
		switch {
		case errors.Is(o.Err, ErrBehind):
			got[index[o.PartitionOffset]] = "behind"
		case rejected:
			got[index[o.PartitionOffset]] = "rejected"
		default:
			got[index[o.PartitionOffset]] = "sent"
		}
	}
	want := map[int]string{0: "sent", 1: "rejected", 2: "sent", 3: "behind", 4: "rejected", 5: "sent", 6: "behind", 7: "sent"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if records := p.kafka.ReadAll(t, p.topic); len(records) != 4 {
		t.Errorf("%d records", len(records))
	}
}

// A dry run sends nothing, and says which topics are missing.
func TestDryRunOfResend(t *testing.T) {
	p := newFixture(t)
	p.addDeadLetter(t, 0, 10)
	rec := &sink.Record{Topic: "missing", Partition: sink.AnyPartition, Key: []byte("key"), Timestamp: time.UnixMilli(1)}
	dead := encode.DeadRecord(p.deadLetterTopic, encode.Origin{Index: 1}, rec, "bad")
	p.produce(t, &kgo.Record{Key: dead.Key, Timestamp: dead.Timestamp}, dead.Headers)
	b := p.open(t)
	r, outcomes := p.resender(t, b, p.selectAll(t, b, Filter{}), true)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range *outcomes {
		if _, rejected := errors.AsType[*rows.RejectedError](o.Err); rejected != (o.Topic == "missing") || !rejected && o.Err != nil {
			t.Errorf("%+v", o)
		}
	}
	if left := p.selectAll(t, b, Filter{}); len(*outcomes) != 2 || left.Len() != 2 || len(p.kafka.ReadAll(t, p.topic)) > 0 {
		t.Errorf("%d outcomes, %d dead letters left", len(*outcomes), left.Len())
	}

	r, outcomes = p.resender(t, b, p.selectAll(t, b, Filter{}), true)
	p.kafka.Control.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.kafka.Control.KeepControl()
		return nil, errors.New("hang up"), true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Flush(ctx); err == nil || len(*outcomes) > 0 {
		t.Errorf("%v, outcomes of a broker that cannot be asked: %v", err, *outcomes)
	}
}

// TestStalledResendMarksNothing: if Kafka acknowledges nothing for too long, Flush fails and marks no dead letter
// as resent.
func TestStalledResendMarksNothing(t *testing.T) {
	p := newFixture(t)
	p.addDeadLetter(t, 0, 10)
	b := p.open(t)
	selection := p.selectAll(t, b, Filter{})
	var produced atomic.Int32
	p.kafka.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.kafka.Control.KeepControl()
		produced.Add(1)
		return nil, errors.New("hang up"), true
	})
	r, outcomes := p.resender(t, b, selection, false)
	if err := r.Flush(t.Context()); !errors.Is(err, sink.ErrStalled) || len(*outcomes) != 0 || produced.Load() == 0 {
		t.Errorf("%v, outcomes %v, %d attempts", err, *outcomes, produced.Load())
	}
	if s := p.selectAll(t, b, Filter{}); s.Len() != 1 {
		t.Errorf("%d dead letters are left", s.Len())
	}
}

// TestInterruptedResendMarksNothing: an interrupted resend marks no dead letter that Kafka has not acknowledged.
func TestInterruptedResendMarksNothing(t *testing.T) {
	p := newFixture(t)
	p.addDeadLetter(t, 0, 10)
	b := p.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, outcomes := p.resender(t, b, p.selectAll(t, b, Filter{}), false)
	if err := r.Flush(ctx); !errors.Is(err, context.Canceled) || len(*outcomes) != 0 {
		t.Errorf("%v, outcomes %v", err, *outcomes)
	}
	if s := p.selectAll(t, b, Filter{}); s.Len() != 1 {
		t.Errorf("%d dead letters are left", s.Len())
	}
}

func TestParsePartitionOffset(t *testing.T) {
	if p, err := ParsePartitionOffset("3:42"); err != nil || p != (PartitionOffset{3, 42}) || p.String() != "3:42" {
		t.Errorf("%v, %v", p, err)
	}
	for _, text := range []string{"", "42", ":", "0:", ":1", "-1:0", "0:-1", "0:x", "0:1:2", "4294967296:0"} {
		if p, err := ParsePartitionOffset(text); err == nil {
			t.Errorf("%q is %s", text, p)
		}
	}
}

// A relay knows only its own parked keys. It counts what it has released apart from what was resent, and resends nothing of a key that
// another relay has parked: its later records may wait behind it.
func TestSelectionOfParkedKeys(t *testing.T) {
	p := newFixture(t)
	for n, of := range []struct{ slot, parking string }{{"mine", ""}, {"mine", "waits"}, {"mine", "released"}, {"other", ""}, {"other", "unknown"}, {"mine", "stopped"}, {"mine", "stopped"}} {
		rec := &sink.Record{Topic: p.topic, Partition: 1, Key: []byte("key"), Timestamp: time.UnixMilli(1)}
		dead := encode.DeadRecord(p.deadLetterTopic, encode.Origin{Slot: of.slot, Index: n}, rec, "bad")
		if of.parking != "" {
			dead = encode.Park(dead, rec.Key, encode.Parked{Parking: of.parking, Place: encode.Place{LSN: 1, Index: n}})
		}
		p.produce(t, &kgo.Record{Key: dead.Key, Timestamp: dead.Timestamp}, dead.Headers)
	}
	b := p.open(t)
	keys := func(context.Context) (*parking.Record, time.Time, error) {
		key := parking.Key{Topic: p.topic}
		return &parking.Record{Parkings: []parking.Parking{{ID: "waits", Key: key}, {ID: "stopped", Key: key, Released: encode.Place{LSN: 1, Index: 5}}}}, time.Time{}, nil
	}
	all := p.selectAll(t, b, Filter{Resent: true})
	type counts struct{ resent, otherSlots, parked, released, elsewhere int }
	for name, tc := range map[string]struct {
		filter Filter
		want   []int
		counts counts
	}{
		"list":                    {Filter{}, []int{0, 1, 3, 6}, counts{released: 2, elsewhere: 1}},
		"list --resent":           {Filter{Resent: true}, []int{0, 1, 2, 3, 4, 5, 6}, counts{}},
		"resend":                  {Filter{Resendable: true, Slot: "mine"}, []int{0}, counts{otherSlots: 1, parked: 3, released: 1, elsewhere: 1}},
		"resend --any-slot":       {Filter{Resendable: true}, []int{0, 3}, counts{parked: 3, released: 1, elsewhere: 1}},
		"resend --again":          {Filter{Resendable: true, Resent: true}, []int{0, 2, 3}, counts{parked: 3, elsewhere: 1}},
		"resend by offset":        {Filter{Resendable: true, Offsets: offsets(all)[1:]}, []int{1, 3, 4, 6}, counts{released: 2}},
		"resend of all by offset": {Filter{Resendable: true, Resent: true, Offsets: offsets(all)}, []int{0, 1, 2, 3, 4, 5, 6}, counts{}},
	} {
		tc.filter.Parked, tc.filter.Relay = keys, "mine"
		s := p.selectAll(t, b, tc.filter)
		if got := p.indexes(t, b, s); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if got := (counts{s.AlreadyResent, s.OtherSlots, s.Parked, s.Released, s.Elsewhere}); got != tc.counts {
			t.Errorf("%s leaves out %+v, want %+v", name, got, tc.counts)
		}
		if err := b.Read(t.Context(), s, func(l *DeadLetter) error {
			if l.Elsewhere != (l.Index == 4) || l.Waiting != (l.Index == 1 || l.Index >= 5) || l.Passed != (l.Index == 5) {
				t.Errorf("%s: dead letter %d: waiting %t, passed %t, elsewhere %t", name, l.Index, l.Waiting, l.Passed, l.Elsewhere)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a set of parked keys, or with one that has begun later, nothing says whether they were released. A list has their records; resend
// takes them only on demand.
func TestSelectionOfLostKeys(t *testing.T) {
	p := newFixture(t)
	rec := &sink.Record{Topic: p.topic, Partition: 1, Key: []byte("key"), Timestamp: time.UnixMilli(1)}
	dead := encode.Park(encode.DeadRecord(p.deadLetterTopic, encode.Origin{Slot: "mine"}, rec, "bad"), rec.Key, encode.Parked{Parking: "lost", Place: encode.Place{LSN: 1}})
	p.produce(t, &kgo.Record{Key: dead.Key, Timestamp: dead.Timestamp}, dead.Headers)
	b := p.open(t)
	for name, tc := range map[string]struct {
		filter      Filter
		found, lost int
	}{
		"list":           {Filter{}, 1, 0},
		"resend":         {Filter{Resendable: true}, 0, 1},
		"resend --again": {Filter{Resendable: true, Resent: true}, 1, 0},
	} {
		for _, rec := range []*parking.Record{nil, {}} {
			tc.filter.Relay, tc.filter.Parked = "mine", func(context.Context) (*parking.Record, time.Time, error) {
				return rec, time.Now().Add(time.Second), nil
			}
			s := p.selectAll(t, b, tc.filter)
			if s.Len() != tc.found || s.Lost != tc.lost || s.Released+s.Parked+s.Elsewhere > 0 {
				t.Errorf("%s: %+v", name, s)
			}
			if err := b.Read(t.Context(), s, func(l *DeadLetter) error {
				if !l.Lost || l.Waiting || l.Elsewhere {
					t.Errorf("%s: %+v", name, l)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// offsets returns the offsets of the dead letters of a Selection.
func offsets(s *Selection) (all []PartitionOffset) {
	for _, m := range s.matches {
		all = append(all, m.PartitionOffset)
	}
	return all
}
