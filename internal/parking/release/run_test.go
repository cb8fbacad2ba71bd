package release

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

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
			target, err := kafka.Config{Brokers: fake.Addrs}.Open(t.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			var asked atomic.Int32
			fence := func() error {
				if test.lost && asked.Add(1) > 1 {
					return errOver
				}
				return nil
			}
			r := &releaseRun{Releaser: &Releaser{cfg: Config{Fence: fence, Set: parking.NewSet(1), Record: new(position.Record), Positions: new(position.Writer)}}, target: target, stored: time.Now()}
			for i, value := range []string{"good", strings.Repeat("x", 2000), "good"} {
				r.batch = append(r.batch, deadLetter{
					deadLetterPlace: deadLetterPlace{Place: encode.Place{Generation: 1, LSN: 100, Index: i}},
					dead:            &encode.DeadLetter{LSN: 100, Index: i},
					rec:             &sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte("k"), Value: []byte(value)},
				})
			}
			err = r.flush(sinktest.Context(t))
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
