package release

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
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
