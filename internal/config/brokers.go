package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A broker is a kind of broker: a section below sink. Its keys are in a file keys<kind>.go and in declare, its values in a
// field of [Sink], and its entry of [brokers] in a file of its own.
type broker struct {
	kind   string // name of the section
	title  string // for messages
	system string // messaging.system of spans, in OpenTelemetry's registry if it has the broker

	// stores says that the broker stores position records, under the name in position_topic. Otherwise position.file
	// says where they are.
	stores bool
	store  string // default of position_topic; empty: that of the key

	parks      bool // its dead letters can be read back in the order of a key, as on_bad_record: park requires
	partitions bool // a row may select its partition
	fences     bool // it rejects records of an older relay, see [sink.PositionStore.CheckOrder]
	batches    bool // its client has no message and buffers of its own for each request in flight

	names     func(c *Config) encode.Names         // rules for destinations
	check     func(c *Config) error                // contradictions among the keys of the section, and of other keys with it
	build     func(c *Config) (sink.Broker, error) // an *Error for missing keys
	warn      func(c *Config) []string             // see Warnings
	addresses func(c *Config) []string             // for people, without credentials
	reloads   []replaced                           // keys that may change while the process runs
}

// brokers returns every kind, in the order of the documentation.
func brokers() []broker {
	return []broker{
		kafkaBroker(),
		jetStreamBroker(),
		rabbitMQBroker(),
		redisBroker(),
		sqsBroker(),
		webhookBroker(),
	}
}

// at returns the prefix of the keys of the section.
func (b broker) at() string { return "sink." + b.kind + "." }

// broker returns the configured kind: Kafka if none is, whose missing key Relay then reports.
func (c *Config) broker() broker {
	for _, b := range brokers() {
		if _, configured := c.where(b); configured {
			return b
		}
	}
	return kafkaBroker()
}

// setStore sets position_topic to the default of the broker, unless it is set.
func (c *Config) setStore() {
	if b := c.broker(); b.store != "" && !c.isSet("position_topic") {
		c.PositionTopic = b.store
		c.settings["position_topic"] = setting{value: b.store, where: "default"}
	}
}

// where returns whether a kind is configured, and where.
func (c *Config) where(b broker) (where string, configured bool) {
	if where := c.sections["sink."+b.kind]; where != "" {
		return where, true
	}
	for _, k := range keys {
		if strings.HasPrefix(k.path, b.at()) && c.isSet(k.path) {
			return c.settings[k.path].where, true
		}
	}
	return "", false
}

// checkSink reports several kinds, and what contradicts the configured one.
func (c *Config) checkSink() error {
	var named []string
	for _, b := range brokers() {
		if where, configured := c.where(b); configured {
			named = append(named, fmt.Sprintf("sink.%s (%s)", b.kind, where))
		}
	}
	if len(named) > 1 {
		return &Error{problems: []problem{{key: "sink", text: strings.Join(named, " and ") + " are configured; a relay has one broker, so keep one section"}}}
	}
	b := c.broker()
	errs := []error{b.check(c), c.checkSupported(b)}
	if !b.stores && c.PositionTopic != "" && c.isSet("position_topic") {
		errs = append(errs, c.invalid("position_topic", "has no effect: %s has no place for position records; set position.file instead", b.title))
	}
	if b.stores && c.Position.File != "" {
		errs = append(errs, c.invalid("position.file", "has no effect: %s stores the position record, under the name in position_topic", b.title))
	}
	return join(errs...)
}

// checkSupported reports settings that only other brokers support, and a destination of dead letters that the broker does not
// allow.
func (c *Config) checkSupported(b broker) error {
	var errs []error
	if c.OnBadRecord == park && !b.parks {
		errs = append(errs, c.invalid("on_bad_record", "park needs %s, because the relay reads the records of a parked key back in order; with %s use stop or dead-letter",
			titles(func(b broker) bool { return b.parks }), b.title))
	}
	if c.OnBadRecord != stop || c.isSet("dead_letter_topic") {
		if illegal := b.names(c).Illegal(c.DeadLetterTopic); illegal != "" {
			errs = append(errs, c.invalid("dead_letter_topic", "%q %s", c.DeadLetterTopic, illegal))
		}
	}
	for i, p := range c.Outbox.Place {
		if p.To == encode.ToPartition && !b.partitions {
			errs = append(errs, c.invalid("outbox.place", "item %d: partition needs %s; %s has no partitions", i+1,
				titles(func(b broker) bool { return b.partitions }), b.title))
		}
	}
	return join(errs...)
}

// titles returns the names of the brokers that can do something.
func titles(can func(broker) bool) string {
	var names []string
	for _, b := range brokers() {
		if can(b) {
			names = append(names, b.title)
		}
	}
	return strings.Join(names, " or ")
}

// missingSink returns the error about a configuration without a broker.
func missingSink() error {
	err := missing("sink.kafka.brokers")
	if e, ok := errors.AsType[*Error](err); ok {
		e.problems[0].text += "; or configure another broker (docs/sinks.md)"
	}
	return err
}

// Broker returns the settings of the sink, or an [*Error] that names every missing or wrong key.
func (c *Config) Broker() (sink.Broker, error) {
	if !c.HasBroker() {
		return nil, missingSink()
	}
	return c.broker().build(c)
}

// HasBroker reports whether a broker is configured.
func (c *Config) HasBroker() bool {
	_, configured := c.where(c.broker())
	return configured
}

// CheckFencing returns an error that names the brokers which reject records of an older relay, if the configured one does not.
func (c *Config) CheckFencing() error {
	if b := c.broker(); !b.fences {
		return fmt.Errorf("needs %s: %s does not reject records of an older relay", titles(func(b broker) bool { return b.fences }), b.title)
	}
	return nil
}

// BatchesRequests reports whether the client of the broker has no message and buffers of its own for each request in flight.
func (c *Config) BatchesRequests() bool { return c.broker().batches }

// BrokerName returns the name of the kind of broker, for people.
func (c *Config) BrokerName() string { return c.broker().title }

// BrokerAddresses returns the addresses of the broker, without credentials.
func (c *Config) BrokerAddresses() []string { return c.broker().addresses(c) }

// positions returns where the position record is stored: at the broker if it can, otherwise in a file, if anywhere.
func (c *Config) positions() position.Place {
	if c.broker().stores {
		return position.Place{Topic: c.PositionTopic}
	}
	return position.Place{File: c.Position.File}
}

// positionKey returns the key that says where position records are.
func (c *Config) positionKey() string {
	if c.broker().stores {
		return "position_topic"
	}
	return "position.file"
}

// reserved returns the names of the relay's own destinations.
func (c *Config) reserved() []string {
	own := []string{c.PositionTopic, c.DeadLetterTopic}
	if !c.broker().stores {
		own = own[1:]
	}
	return slices.Clip(own)
}
