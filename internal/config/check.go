package config

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// minLease is the least source.lease.
const minLease = 2 * time.Second

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
	if c.Admin.Listen != "" {
		add(c.checkPorts("admin.listen", 0, c.Admin.Listen))
	}
	if c.broker().stores && c.PositionTopic == c.DeadLetterTopic {
		add(c.invalid("position_topic", "must not be the same topic as dead_letter_topic"))
	}
	if c.Source.InitialCopy && c.Source.Create == string(relay.CreateNone) {
		add(c.invalid("source.initial_copy", "has no effect: source.create is none"))
	}
	if c.Source.InitialCopyWhere != "" && !c.Source.InitialCopy {
		add(c.invalid("source.initial_copy_where", "has no effect: source.initial_copy is false"))
	}
	if c.Source.Lease < minLease {
		add(c.invalid("source.lease", "is %s; at least %s is allowed, since a busy machine may be silent for so long", c.Source.Lease, minLease))
	}
	if positions := c.positionKey(); c.positions().IsZero() {
		if c.Source.Create == string(relay.CreateSlot) {
			add(c.invalid("source.create", "slot needs %s, because without it a later start cannot tell whether the slot was lost", positions))
		}
		if c.Source.InitialCopy {
			add(c.invalid("source.initial_copy", "needs %s, because without it the next start cannot tell whether the copy was complete", positions))
		}
		if c.Source.OnSlotLoss == refill {
			add(c.invalid("source.on_slot_loss", "refill needs %s, because without it nothing says which rows were delivered", positions))
		}
	}
	if c.Source.OnSlotLoss == refill && len(c.Outbox.Messages) > 0 {
		add(c.invalid("source.on_slot_loss", "refill needs a table: the rows of outbox.messages are in the WAL only"))
	}
	for _, prefix := range c.Outbox.Messages {
		switch {
		case prefix == "" || strings.Contains(prefix, "\x00"):
			add(c.invalid("outbox.messages", "%q is not allowed as a prefix", prefix))
		case prefix == catalog.MessagePrefix:
			add(c.invalid("outbox.messages", "prefix %q is reserved for outbox-cdc's own messages; write rows with another prefix", prefix))
		}
	}
	if len(c.Outbox.Messages) > 0 && c.isSet("outbox.tables") {
		add(c.invalid("outbox.messages", "set together with outbox.tables; set only one of them"))
	}
	add(c.checkSink())
	_, err := c.tracing()
	add(err)
	return join(errs...)
}

// checkPorts reports which of the addresses, as host:port, has a port that is not in the range from least to 65535.
func (c *Config) checkPorts(path string, least uint64, addresses ...string) error {
	var errs []error
	for _, address := range addresses {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < least {
			errs = append(errs, c.invalid(path, "found %q; a port is a number from %d to 65535", address, least))
		}
	}
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
