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
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics library starts it for good when something is fetched.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// A post is a topic of events and a dead-letter topic.
type post struct {
	kafka         *kafkatest.FakeCluster
	client        *kgo.Client
	cfg           relay.Config
	topic, letter string
	log           *slog.Logger
}

func newPost(t *testing.T) *post {
	t.Helper()
	p := &post{kafka: kafkatest.Fake(t), log: slog.New(slog.DiscardHandler)}
	p.client = p.kafka.Client(t)
	p.topic = p.kafka.Topic(t, 3, map[string]string{"max.message.bytes": "1000"})
	p.letter = p.kafka.Topic(t, 2, nil)
	p.cfg = relay.Config{Sink: kafka.Config{Brokers: p.kafka.Addrs}, Route: encode.Config{Columns: encode.DefaultColumns()}}
	return p
}

// put puts records aside: number n with a value of size bytes.
func (p *post) put(t *testing.T, n, size int) {
	t.Helper()
	rec := &sink.Record{
		Topic: p.topic, Partition: 1, Key: fmt.Append(nil, "key ", n%2), Value: []byte(strings.Repeat("x", size)),
		Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, n)}}, Timestamp: time.UnixMilli(int64(n)),
	}
	dead := encode.DeadRecord(p.letter, encode.Origin{Slot: "s", Index: n}, rec, fmt.Sprint("reason ", n))
	p.produce(t, &kgo.Record{Key: dead.Key, Value: dead.Value, Timestamp: dead.Timestamp}, dead.Headers)
}

// produce writes to the dead-letter topic.
func (p *post) produce(t *testing.T, rec *kgo.Record, headers []sink.Header) {
	t.Helper()
	rec.Topic = p.letter
	for _, h := range headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	if err := p.client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (p *post) open(t *testing.T) *Box {
	t.Helper()
	b, err := Open(t.Context(), p.cfg.Sink, p.letter, p.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (p *post) survey(t *testing.T, b *Box, f Filter) *Survey {
	t.Helper()
	s, err := b.Survey(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// indexes returns which records the letters of a survey are.
func (p *post) indexes(t *testing.T, b *Box, s *Survey) (all []int) {
	t.Helper()
	if err := b.Letters(t.Context(), s, func(l *Letter) error {
		all = append(all, l.Index)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// resender returns a Resender that has been given the letters of a survey, and where it reports
// what became of each.
func (p *post) resender(t *testing.T, b *Box, s *Survey) (*Resender, *[]Outcome) {
	t.Helper()
	client, err := p.cfg.Sink.Open(t.Context(), p.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	reviver, err := NewReviver(t.Context(), p.cfg, p.letter)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := new([]Outcome)
	r := NewResender(client, p.letter, time.Second, func(o Outcome) { *outcomes = append(*outcomes, o) })
	if err := b.Letters(t.Context(), s, func(l *Letter) error {
		rec, err := reviver.Record(t.Context(), l)
		if err != nil {
			return err
		}
		return r.Add(t.Context(), l.Place, rec)
	}); err != nil {
		t.Fatal(err)
	}
	return r, outcomes
}

// Letters are found among other things, in their places, and no longer when they are marked.
func TestSurvey(t *testing.T) {
	p := newPost(t)
	for n := range 6 {
		p.put(t, n, 10)
		p.produce(t, &kgo.Record{Key: []byte("key 0"), Value: []byte("something else")}, nil)
		time.Sleep(2 * time.Millisecond) // they were put aside one after the other
	}
	b := p.open(t)
	s := p.survey(t, b, Filter{})
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	s.Newest(2)
	if diff := cmp.Diff([]int{4, 5}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("the newest (-want +got):\n%s", diff)
	}
	s = p.survey(t, b, Filter{Reason: "REASON 3"})
	place := s.found[0].Place
	if diff := cmp.Diff([]int{3}, p.indexes(t, b, s)); diff != "" {
		t.Errorf("by reason (-want +got):\n%s", diff)
	}
	mark, err := markFor(p.letter, place, p.topic, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.produce(t, &kgo.Record{Key: mark.Key, Value: mark.Value}, mark.Headers) // wherever its key leads
	marked := p.survey(t, b, Filter{})
	foreign := Place{1 - place.Partition, place.Offset}
	if n := marked.Len() + marked.Marked; n != 6 {
		t.Errorf("%d letters, %d marked; %s may mark nothing", marked.Len(), marked.Marked, foreign)
	}
	for _, at := range []Place{{9, 0}, {place.Partition, 99}, foreign} {
		if _, err := b.Survey(t.Context(), Filter{Places: []Place{at}, Reason: "no letter has this"}); !errors.Is(err, ErrNoLetter) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// Of many letters those that are still refused stay, all others arrive once, those of a key in
// order, and a second time sends none.
func TestResend(t *testing.T) {
	p := newPost(t)
	const n = 700 // more than are sent before they are marked
	var refused []int
	for i := range n {
		size := 10
		if i%100 == 50 {
			size = 2000
			refused = append(refused, i)
		}
		p.put(t, i, size)
	}
	b := p.open(t)
	r, outcomes := p.resender(t, b, p.survey(t, b, Filter{}))
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
			t.Errorf("%s: %v", o.Place, o.Err)
		}
	}
	if len(*outcomes) != n || stay != len(refused) {
		t.Errorf("%d outcomes, %d of them refusals", len(*outcomes), stay)
	}
	left := p.survey(t, b, Filter{})
	if diff := cmp.Diff(refused, p.indexes(t, b, left)); diff != "" || left.Marked != n-len(refused) {
		t.Errorf("%d are marked; left (-want +got):\n%s", left.Marked, diff)
	}
	records := p.kafka.ReadAll(t, p.topic)
	last := map[string]int64{"key 0": -1, "key 1": -1}
	for _, rec := range records {
		if at := rec.Timestamp.UnixMilli(); at <= last[string(rec.Key)] {
			t.Fatalf("%s: %d behind %d", rec.Key, at, last[string(rec.Key)])
		}
		last[string(rec.Key)] = rec.Timestamp.UnixMilli()
		if h := rec.Headers[len(rec.Headers)-1]; h.Key != ResentFromHeader || !strings.HasPrefix(string(h.Value), p.letter+"/") {
			t.Fatalf("headers %v", rec.Headers)
		}
	}
	if len(records) != n-len(refused) {
		t.Errorf("%d records", len(records))
	}
}

// When nothing is acknowledged for too long it is given up, and what was is marked all the same.
func TestResendStalls(t *testing.T) {
	p := newPost(t)
	p.put(t, 0, 10)
	b := p.open(t)
	survey := p.survey(t, b, Filter{})
	var produced atomic.Int32
	p.kafka.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.kafka.Control.KeepControl()
		produced.Add(1)
		return nil, errors.New("hang up"), true
	})
	r, outcomes := p.resender(t, b, survey)
	if err := r.Flush(t.Context()); !errors.Is(err, ErrStalled) || len(*outcomes) != 0 || produced.Load() == 0 {
		t.Errorf("%v, outcomes %v, %d attempts", err, *outcomes, produced.Load())
	}
	if s := p.survey(t, b, Filter{}); s.Len() != 1 {
		t.Errorf("%d letters are left", s.Len())
	}
}

// What is interrupted is not marked unless it is acknowledged.
func TestResendInterrupted(t *testing.T) {
	p := newPost(t)
	p.put(t, 0, 10)
	b := p.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, outcomes := p.resender(t, b, p.survey(t, b, Filter{}))
	if err := r.Flush(ctx); !errors.Is(err, context.Canceled) || len(*outcomes) != 0 {
		t.Errorf("%v, outcomes %v", err, *outcomes)
	}
	if s := p.survey(t, b, Filter{}); s.Len() != 1 {
		t.Errorf("%d letters are left", s.Len())
	}
}

func TestParsePlace(t *testing.T) {
	if p, err := ParsePlace("3:42"); err != nil || p != (Place{3, 42}) || p.String() != "3:42" {
		t.Errorf("%v, %v", p, err)
	}
	for _, text := range []string{"", "42", ":", "0:", ":1", "-1:0", "0:-1", "0:x", "0:1:2", "4294967296:0"} {
		if p, err := ParsePlace(text); err == nil {
			t.Errorf("%q is %s", text, p)
		}
	}
}
