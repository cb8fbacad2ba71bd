package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
)

// A kind is a kind of broker. Each has a file of its own.
type kind struct {
	name  string // of its section below sink in a configuration; the value of --sink
	title string // for people
	from  string // which server the demo uses, for --help
	flags string // of outbox-cdc run, for the user's own broker
	page  string // of the documentation

	connects bool   // whether Options.Brokers may name a server
	needs    string // which server Options.Brokers must name, because the demo cannot start one; empty: it can

	// open starts the broker or connects to it, and creates the destinations. It registers their removal with the rig.
	open func(ctx context.Context, r *rig) (*broker, error)
}

// kinds returns every kind, the default first.
func kinds() []kind {
	return []kind{kafkaKind(), jetStreamKind(), rabbitMQKind(), redisKind(), sqsKind(), webhookKind()}
}

// kindNames returns the values of --sink.
func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// findKind returns the kind of opts, or an error if there is none or opts contradict it.
func findKind(opts Options) (kind, error) {
	for _, k := range kinds() {
		if opts.Sink != k.name && opts.Sink != "" {
			continue
		}
		switch given := len(opts.Brokers) > 0; {
		case !given && k.needs != "":
			return kind{}, fmt.Errorf("--sink %s needs --brokers: %s", k.name, k.needs)
		case given && !k.connects:
			return kind{}, fmt.Errorf("--brokers has no effect with --sink %s: the demo uses %s", k.name, k.from)
		}
		return k, checkChaos(opts, k)
	}
	return kind{}, fmt.Errorf("--sink %s is not a kind of broker; use one of %s", opts.Sink, strings.Join(kindNames(), ", "))
}

// A broker is the broker of a demo, with the destinations of the records.
type broker struct {
	details string       // for people: what it is, and where
	addrs   []string     // for the live page
	sink    sink.Broker  // for the relay
	names   encode.Names // rules for destinations
	topic   string       // destination of a row, with ${route} for the aggregate type

	proxy     *faultproxy.Proxy // between the relay and the broker; nil: none
	positions string            // topic of position records, for relays that are processes of their own

	// consume calls take for every record of the destinations, from the first one on, until ctx ends; the error is then of
	// no interest. It calls take for the records of a key one after the other, in their order, and for other keys possibly
	// at the same time.
	consume func(ctx context.Context, take func(message)) error

	// readAll waits until consume has read every record that the broker has at the time of the call. It may be nil.
	readAll func(ctx context.Context) error
}

const route = "${route}"

// destination returns the destination of an aggregate type.
func (b *broker) destination(aggregateType string) string {
	return strings.ReplaceAll(b.topic, route, aggregateType)
}

// destinations returns the destinations of all aggregate types.
func (b *broker) destinations() []string {
	return []string{b.destination("order"), b.destination("customer")}
}

// A message is a record as a consumer of the broker receives it.
type message struct {
	destination, key string
	id, kind         string // of the event
	partition        int32
	offset           int64 // in the partition; the number of the message if the broker has no offsets
}
