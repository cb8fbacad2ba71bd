// Package brokertest starts the brokers other than Kafka for tests of the whole relay, and reads what they store.
//
//	for name, start := range brokertest.All() {
//		b := start(t)
//		r := rig.NewOver(t, rig.Database(t), b.Rig(b.Addr))
//	}
//
// JetStream, RabbitMQ and Redis are real servers in processes of their own, which only a full run starts. SQS and SNS are a
// fake, and the receiver of webhooks is a server of the test.
package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// readTimeout limits a request of a reader to a broker that may be down.
const readTimeout = 2 * time.Second

// All returns the functions that start each broker. Unless the run is a full one, some of them skip the test.
func All() map[string]func(*testing.T) *Broker {
	return map[string]func(*testing.T) *Broker{
		"JetStream": JetStream, "RabbitMQ": RabbitMQ, "Redis": Redis, "SQS": SQS, "SNS": SNS, "Webhook": Webhook,
	}
}

// A Broker is a broker other than Kafka.
type Broker struct {
	Addr    string                                // host:port, to which relays connect, perhaps through a proxy
	Topic   string                                // outbox.topic
	Config  func(addr string) string              // the sections sink and position of a relay that connects to addr
	Process Process                               // nil: it runs in the process of the test
	Timed   bool                                  // arrivals have the time at which they were stored
	Once    bool                                  // drops a record that is sent again
	Collect func(*testing.T, Collect) rig.CatchUp // calls a function for each record that is stored, those of a key in order
}

// A Process is a broker that runs in a process of its own.
type Process interface {
	Kill(ctx context.Context) error     // SIGKILL
	Shutdown(ctx context.Context) error // SIGTERM
	Restart(ctx context.Context) error
	Pause() error // SIGSTOP
	Resume() error
}

// Collect is called with each record that a reader finds. The reader does not call it concurrently.
type Collect func(Arrival)

// An Arrival is a record in the broker.
type Arrival struct {
	Number     int64 // increases in the order of the records
	Key, Value []byte
	Header     func(name string) string
	Stored     time.Time // zero: not known
}

// Rig returns the broker for [rig.NewOver]. The relay connects to addr.
func (b *Broker) Rig(addr string) rig.Broker {
	return rig.Broker{Topic: b.Topic, Config: b.Config(addr), Collect: func(t *testing.T, take func(rig.Received)) rig.CatchUp {
		t.Helper()
		return b.Collect(t, func(a Arrival) {
			take(rig.Received{Offset: a.Number, Key: a.Key, Value: a.Value, ID: a.Header("id"), Type: a.Header("eventType")})
		})
	}}
}

// collected is the CatchUp of a broker that reports each record when it stores it.
func collected(context.Context) error { return nil }

// inBackground calls f again and again until the test ends.
func inBackground(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { // the cleanup waits for it
		defer close(ended)
		for ctx.Err() == nil {
			f(ctx)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}
