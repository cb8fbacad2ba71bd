package config

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// minLease is the least source.lease.
const minLease = 2 * time.Second

// minTransaction is the least sink.kafka.transaction_timeout. The relay commits far more often.
const minTransaction = 10 * time.Second

// check reads the secret files and reports keys that contradict each other.
func (c *Config) check() error {
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	for _, k := range keys {
		if k.kind == secret || k.kind == conninfo {
			add(c.loadSecret(k.path))
		}
	}
	if c.Source.DSN != "" {
		_, err := c.Postgres()
		add(err)
	}
	add(c.checkPassword())
	add(c.checkRoute())
	if c.PositionTopic == c.DeadLetterTopic {
		add(c.invalid("position_topic", "must not be the same topic as dead_letter_topic"))
	}
	if c.OnBadRecord == park && c.PositionTopic == "" {
		add(c.invalid("on_bad_record", "park needs position_topic, where the relay stores which keys are parked"))
	}
	if c.OnBadRecord == park && c.Sink.Kafka.ExactlyOnce {
		add(c.invalid("on_bad_record", "park does not work with sink.kafka.exactly_once, because the parked keys are not stored in the transaction of their records; use stop or dead-letter"))
	}
	if c.Source.InitialCopy && !c.Source.Create && !c.Source.CreateSlot {
		add(c.invalid("source.initial_copy", "has no effect: source.create is false"))
	}
	if c.Source.Lease < minLease {
		add(c.invalid("source.lease", "is %s; at least %s is allowed, since a busy machine may be silent for so long", c.Source.Lease, minLease))
	}
	if c.Source.CreateSlot && c.PositionTopic == "" {
		add(c.invalid("source.create_slot", "needs position_topic, because without it a later start cannot tell whether the slot was lost"))
	}
	if c.Source.InitialCopy && c.PositionTopic == "" {
		add(c.invalid("source.initial_copy", "needs position_topic, because without it the next start cannot tell whether the copy was complete"))
	}
	if c.Source.OnSlotLoss == refill && c.PositionTopic == "" {
		add(c.invalid("source.on_slot_loss", "refill needs position_topic, because without it nothing says which rows were delivered"))
	}
	if c.Source.OnSlotLoss == refill && len(c.Outbox.Messages) > 0 {
		add(c.invalid("source.on_slot_loss", "refill needs a table: the rows of outbox.messages are in the WAL only"))
	}
	if k := c.Sink.Kafka; k.ExactlyOnce && c.PositionTopic == "" {
		add(c.invalid("sink.kafka.exactly_once", "needs position_topic, whose record belongs to each transaction"))
	} else if k.TransactionTimeout < minTransaction {
		add(c.invalid("sink.kafka.transaction_timeout", "found %s; the minimum is %s", k.TransactionTimeout, minTransaction))
	}
	for _, prefix := range c.Outbox.Messages {
		switch {
		case prefix == "" || strings.Contains(prefix, "\x00"):
			add(c.invalid("outbox.messages", "%q is not allowed as a prefix", prefix))
		case catalog.Reserved(prefix):
			add(c.invalid("outbox.messages", "prefix %q is reserved for outbox-cdc's own messages; write rows with another prefix", prefix))
		}
	}
	if len(c.Outbox.Messages) > 0 && c.isSet("outbox.tables") {
		add(c.invalid("outbox.messages", "set together with outbox.tables; set only one of them"))
	}
	for _, broker := range c.Sink.Kafka.Brokers {
		_, port, _ := net.SplitHostPort(broker)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			add(c.invalid("sink.kafka.brokers", "found %q; a port is a number from 1 to 65535", broker))
		}
	}
	_, err := c.kafkaLogin()
	add(err)
	if topics := c.Sink.Kafka.CreateTopics; topics.ReplicationFactor != -1 && topics.Partitions == 0 {
		add(c.invalid("sink.kafka.create_topics.replication_factor", "has no effect: sink.kafka.create_topics.partitions is not set"))
	}
	_, err = c.kafkaTLS()
	add(err)
	_, err = c.tracing()
	add(err)
	return join(errs...)
}

// checkRoute reports the problems of route, each under its key.
func (c *Config) checkRoute() error {
	_, err := encode.New(c.route())
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	var e Error
	for _, err := range errs {
		key, text, _ := strings.Cut(err.Error(), ": ")
		if !strings.HasPrefix(key, "debezium.") && !strings.HasPrefix(key, "headers.") {
			key = "outbox." + key
		}
		table, _, _ := strings.Cut(key, "[")
		e.problems = append(e.problems, problem{where: c.settings[table].where, key: key, text: text})
	}
	return &e
}
