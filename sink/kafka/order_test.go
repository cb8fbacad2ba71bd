package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// ofOrder reports whether req is a write of CheckOrder.
func ofOrder(req kmsg.Request) bool {
	return req.Key() == int16(kmsg.Produce) && strings.Contains(string(req.AppendTo(nil)), orderKey)
}

// answerOrder makes a broker respond to the nth write of CheckOrder with a code, and store nothing.
func answerOrder(k *kfake.Cluster, nth int, code int16) {
	writes := 0
	k.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if !ofOrder(req) {
			return nil, nil, false
		}
		if writes++; writes != nth {
			return nil, nil, false
		}
		resp := kafkatest.Accept(req.(*kmsg.ProduceRequest))
		resp.Topics[0].Partitions[0].ErrorCode = code
		return resp, nil, true
	})
}

// refuseOwner makes a broker refuse every transactional id.
func refuseOwner(k *kfake.Cluster, answer *kerr.Error) {
	k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: answer, Count: -1, When: func(req kmsg.Request) bool {
		return req.(*kmsg.InitProducerIDRequest).TransactionalID != nil
	}})
}

// TestCheckOrder: CheckOrder finds out whether the broker rejects an older writer. Read does not return the records
// that it writes for that.
func TestCheckOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broker func(k *kfake.Cluster)
		want   error // nil: the broker rejects the older writer
	}{
		{"as Apache Kafka", func(*kfake.Cluster) {}, nil},
		{"accepts the older", func(k *kfake.Cluster) { answerOrder(k, 2, 0) }, sink.ErrOlderAccepted},
		{"rejects the newer", func(k *kfake.Cluster) { answerOrder(k, 3, kerr.InvalidProducerEpoch.Code) }, sink.ErrNewerRejected},
		{"has lost what the newer wrote", func(k *kfake.Cluster) { answerOrder(k, 2, kerr.OutOfOrderSequenceNumber.Code) }, nil},
		{"no right", func(k *kfake.Cluster) { answerOrder(k, 1, kerr.TopicAuthorizationFailed.Code) }, sink.ErrAccess},
		{"no right to the transactional id", func(k *kfake.Cluster) { refuseOwner(k, kerr.TransactionalIDAuthorizationFailed) }, errors.ErrUnsupported},
		{"trouble that heals", func(k *kfake.Cluster) {
			k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, TopLevel: true},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend})
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := kafkatest.Fake(t, kfake.NumBrokers(1))
			s, _ := openPositions(t, k.Cluster, "positions", "key")
			post(t, s, firstKey, []byte("value"))
			tt.broker(k.Control)
			err := s.CheckOrder(sinktest.Context(t))
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("CheckOrder: %v, want %v", err, tt.want)
			}
			wantValues(t, s, "value")
			for _, rec := range k.ReadAll(t, "positions")[1:] {
				if string(rec.Key) != orderKey || rec.Value != nil {
					t.Errorf("%q: %q is stored", rec.Key, rec.Value)
				}
			}
		})
	}
}

// TestCheckOrderHoldsNothingUp: the store writes and reads positions while the broker leaves the check unanswered.
// The check ends with its context.
func TestCheckOrderHoldsNothingUp(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	s, _ := openPositions(t, k.Cluster, "positions", "key")
	o := own(t, s)
	held, release := make(chan struct{}), make(chan struct{})
	k.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Control.KeepControl()
		if ofOrder(req) {
			close(held)
			k.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(sinktest.Context(t))
	checked := make(chan error, 1)
	go func() { checked <- s.CheckOrder(ctx) }()
	<-held
	for _, value := range []string{"1", "2"} {
		write(t, o, value)
		wantValues(t, s, value)
	}
	cancel(over)
	if err := <-checked; !errors.Is(err, over) {
		t.Errorf("CheckOrder: %v", err)
	}
	if stat := s.client.Stat(); !stat.StalledSince.IsZero() {
		t.Errorf("stalled since %s: %s", stat.StalledSince, stat.StallReason)
	}
	close(release)
}
