package release

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A record that the topic accepted before is not too large because of the headers of a release.
func TestReleaseOfARecordAtTheLimit(t *testing.T) {
	fake := kafkatest.Fake(t)
	topic := fake.Topic(t, 1, map[string]string{"max.message.bytes": "1000"})
	r := releaseTo(t, fake, func() error { return nil })
	headers := []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "resent", Value: []byte("true")}, {Key: rows.ResentFromHeader, Value: []byte("dead/0:42")}}
	for i, size := range []int{1, 900, 1} {
		r.add(i, &sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte("k"), Value: make([]byte, size), Headers: slices.Clone(headers)})
	}
	if err := r.flush(sinktest.Context(t)); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, rec := range fake.ReadAll(t, topic) {
		got = append(got, len(rec.Headers))
	}
	if !slices.Equal(got, []int{3, 1, 3}) {
		t.Errorf("%v headers", got)
	}
}

// releaseTo returns a release that sends to a broker.
func releaseTo(t *testing.T, fake *kafkatest.FakeCluster, fence func() error) *releaseRun {
	t.Helper()
	target, err := kafka.Config{Brokers: fake.Addrs}.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	return &releaseRun{Releaser: &Releaser{cfg: Config{Fence: fence, Set: parking.NewSet(1), Record: new(position.Record), Positions: new(position.Writer)}}, target: target, stored: time.Now()}
}

// add adds the dead letter of a row to the batch.
func (r *releaseRun) add(index int, rec *sink.Record) {
	r.batch = append(r.batch, deadLetter{
		deadLetterPlace: deadLetterPlace{Place: encode.Place{Generation: 1, LSN: 100, Index: index}},
		dead:            &encode.DeadLetter{LSN: 100, Index: index},
		rec:             rec,
	})
}

// A release that is interrupted must not take a record that it has not delivered for the one that Kafka rejects: an
// operator may discard the record at which a release has stopped.
func TestReleaseStopsAtTheRejectedRecord(t *testing.T) {
	for name, test := range map[string]struct {
		lost  bool // the session, before anything is sent
		stops bool
	}{
		"delivered up to it":  {false, true},
		"the session is lost": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := kafkatest.Fake(t)
			topic := fake.Topic(t, 1, map[string]string{"max.message.bytes": "1000"})
			var asked atomic.Int32
			fence := func() error {
				if test.lost && asked.Add(1) > 1 {
					return errOver
				}
				return nil
			}
			r := releaseTo(t, fake, fence)
			for i, value := range []string{"good", strings.Repeat("x", 2000), "good"} {
				r.add(i, &sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte("k"), Value: []byte(value)})
			}
			err := r.flush(sinktest.Context(t))
			stopped, ok := errors.AsType[*releaseStoppedError](err)
			if ok != test.stops || ok && stopped.row.Index != 1 {
				t.Errorf("flush: %v", err)
			}
			if err == nil || test.stops != errors.As(err, new(*sink.RecordError)) { // a record is rejected when those before it are delivered
				t.Errorf("flush: %v", err)
			}
		})
	}
}

// A discard that cannot send the rest reports what it has dropped. The key is then parked because of the next record, and the same
// request again drops no other one.
func TestDiscardThatCannotSendTheRest(t *testing.T) {
	fake := kafkatest.Fake(t)
	r := releaserOf(t, fake, "missing", 110, 150, 190)
	first, second := parking.Row{LSN: 110}, parking.Row{LSN: 150}
	request := func(action parking.Action, row string) parking.Result {
		t.Helper()
		result, err := r.release(sinktest.Context(t), &parking.Request{ID: uuid.NewString(), Action: action, Parking: r.cfg.Set.List()[0].ID, Row: row})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if res := request(parking.Discard, first.Place()); res.Outcome != parking.Failed || res.Dropped != first.String() || !strings.Contains(res.Reason, "does not exist") {
		t.Errorf("the topic does not exist: %+v", res)
	}
	for _, row := range []string{first.Place(), ""} { // without a row, only a record that was found bad is dropped
		if p := r.cfg.Set.List()[0]; p.Bad != second || !p.Unsent || !strings.Contains(p.Reason, "does not exist") {
			t.Errorf("parked behind %s: %s", p.Bad, p.Reason)
		}
		if res := request(parking.Discard, row); res.Outcome != parking.Failed || res.Dropped != "" {
			t.Errorf("discard of %q: %+v", row, res)
		}
	}
	if res := request(parking.Discard, second.Place()); res.Dropped != second.String() {
		t.Errorf("the next one: %+v", res)
	}
	fake.CreateTopic(t, "missing", 1, nil)
	if res := request(parking.Release, ""); res.Outcome != parking.Released || res.Released != 1 {
		t.Errorf("release: %+v", res)
	}
}

// A relay was killed while a release of the key was under way, and the request was withdrawn: the key is still parked because of a record
// that was sent. A discard of that one drops nothing, and names the first one.
func TestDiscardOfARecordThatWasSent(t *testing.T) {
	r := releaserOf(t, kafkatest.Fake(t), "missing", 110, 150, 190)
	p := r.cfg.Set.List()[0]
	r.cfg.Set.Progress(p.ID, []encode.Place{{Generation: 1, LSN: 110}}, 1)
	res, err := r.release(sinktest.Context(t), &parking.Request{ID: uuid.NewString(), Action: parking.Discard, Parking: p.ID, Row: p.Bad.Place()})
	if want := (parking.Row{LSN: 150}); err != nil || res.Dropped != "" || !strings.Contains(res.Reason, "nothing was dropped") || r.cfg.Set.List()[0].Bad != want {
		t.Errorf("%+v, %v; parked behind %s", res, err, r.cfg.Set.List()[0].Bad)
	}
}

// releaserOf returns a Releaser with one parked key of a topic, whose dead letters have these places.
func releaserOf(t *testing.T, fake *kafkatest.FakeCluster, topic string, at ...pglogrepl.LSN) *Releaser {
	t.Helper()
	set, dead := parking.NewSet(1), fake.Topic(t, 1, nil)
	w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(100), func(c *position.Config) { c.Parked = set })
	t.Cleanup(positiontest.Run(t, w))
	positiontest.Deliver(tracker, 200)
	parked, _ := set.Park(parking.Key{Topic: topic, Key: "k"}, "bad", parking.Row{LSN: at[0]})
	for _, lsn := range at {
		parked.Place = encode.Place{Generation: 1, LSN: lsn}
		rec := &sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte("k")}
		rec = encode.Park(encode.DeadRecord(dead, encode.Origin{Slot: "s", Tx: encode.Tx{CommitLSN: lsn}}, rec, "bad"), rec.Key, parked)
		stored := &kgo.Record{Topic: dead, Key: rec.Key}
		for _, h := range rec.Headers {
			stored.Headers = append(stored.Headers, kgo.RecordHeader(h))
		}
		if err := fake.Client(t).ProduceSync(t.Context(), stored).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{
		Sink: kafka.Config{Brokers: fake.Addrs}, DeadLetters: dead, Timeout: wait.Patience(), Set: set, Keys: w.Parked, Record: w.Record, Positions: w.Writer, Tracker: tracker,
		Rows: rows.Config{Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()}}, Fence: func() error { return nil }, Flush: func() {}, Copying: func() bool { return false }, Turn: make(chan struct{}, 1), Log: slog.New(slog.DiscardHandler),
	})
}
