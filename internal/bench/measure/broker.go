package measure

import (
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// TopicPrefix is what the names of all destinations of a bench begin with.
const TopicPrefix = "outbox-cdc-bench-"

// ClientID is the name of the bench's own connections.
const ClientID = "outbox-cdc-bench"

// A Broker is the broker that contenders write to. What it refuses is a [*ServerError].
type Broker interface {
	// Open returns a connection that has reached the broker, and creates the destinations of a workbench. They are as fast as
	// destinations that have been used before.
	Open(ctx context.Context, l Layout) (Destinations, error)

	// List returns the names of the destinations that begin with TopicPrefix. It may leave out those that the broker
	// deletes by itself.
	List(ctx context.Context) ([]string, error)

	// DropCommand returns what a person does to delete the destinations with a prefix.
	DropCommand(prefix string) string
}

// A Layout is what the destinations of a workbench are like.
type Layout struct {
	Prefix            string // of all names: TopicPrefix, a unique part, and a period
	Topics            int    // destination number i is for the aggregate type "t<i>"
	Partitions        int32  // of each topic; only of Kafka
	ReplicationFactor int16  // of each topic; only of Kafka
}

// Destinations are the topics, streams or queues of a workbench.
type Destinations interface {
	// Observe returns a Stream of everything that is written from now on. If the broker would drop a row that it has had
	// before, the Stream has destinations of its own.
	Observe(ctx context.Context) (Stream, error)

	// Delete deletes the destinations, and those of the layout's prefix that contenders have created.
	Delete(ctx context.Context) error

	// Close closes the connection.
	Close()
}

// A Stream has the records of one measurement. One goroutine at a time uses it.
type Stream interface {
	// Names returns the destinations, by number.
	Names() []string

	// Settings returns the relay's configuration for these destinations, by key.
	Settings() map[string]any

	// Poll passes the next records to take, in the order of their destination. It waits for the first one for a while, or
	// until ctx is done, which is no error.
	Poll(ctx context.Context, take Take) error

	// End returns a function that reports whether Poll has passed everything that was written before the call of End.
	End(ctx context.Context) (reached func() bool, err error)

	// Close stops reading, and deletes the destinations that are only this Stream's.
	Close(ctx context.Context) error
}

// A BatchCounter is a Stream of a broker that stores records in batches.
type BatchCounter interface {
	// Batches returns the number of batches that were read. Poll may not have passed the records of the last ones.
	Batches() int
}

// Take gets a record that was received at a time. key and value are valid during the call.
type Take func(at time.Time, where delivery.Coordinates, key, value []byte)

// A Producer publishes rows with the broker's client library, asynchronously.
type Producer interface {
	// Publish sends messages, those of a key in order. It may return before they are acknowledged, and blocks while the
	// library has too many. messages and their payloads must not change afterwards.
	Publish(ctx context.Context, messages []Message) error

	// Wait returns when everything is acknowledged.
	Wait(ctx context.Context) error
}

// A Message is a row as a client of the library publishes it.
type Message struct {
	Topic         string // a name of [Stream.Names]
	Key, ID, Type string
	Payload       []byte
}
