package config

import (
	"cmp"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/prune"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Relay returns the settings of the relay, or an [*Error] that names every missing key.
func (c *Config) Relay() (relay.Config, error) {
	pg, pgErr := c.Postgres()
	broker, brokerErr := c.Broker()
	if err := join(pgErr, brokerErr); err != nil {
		return relay.Config{}, err
	}
	cfg := c.rows(pg)
	cfg.Sink, cfg.Source.Lease = broker, c.Source.Lease
	cfg.Create, cfg.InitialCopy, cfg.SlotFailover = relay.Creation(c.Source.Create), c.Source.InitialCopy, c.Source.SlotFailover
	cfg.InitialCopyWhere = c.Source.InitialCopyWhere
	cfg.RefillOnLoss = c.Source.OnSlotLoss == refill
	cfg.FailIfSlotInUse = !c.Source.WaitForSlot
	cfg.Positions, cfg.DrainTimeout = c.positions(), c.DrainTimeout
	if c.OnBadRecord == park {
		cfg.ParkedKeys = c.MaxParkedKeys
	}
	return cfg, nil
}

// Tail returns the settings of a tail: those of Relay for reading and converting rows. It does not require a broker.
func (c *Config) Tail() (relay.Config, error) {
	pg, err := c.Postgres()
	if err != nil {
		return relay.Config{}, err
	}
	return c.rows(pg), nil
}

// rows returns the settings for reading and converting rows.
func (c *Config) rows(pg *pgx.ConnConfig) relay.Config {
	cfg := relay.Config{
		Name:           c.name(),
		Source:         replication.Config{Conn: &pg.Config, Publication: c.Source.Publication, Slot: c.Source.Slot},
		Route:          c.route(),
		Tables:         c.tables(),
		Messages:       c.Outbox.Messages,
		StartupTimeout: c.StartupTimeout,
	}
	if c.SendsDeadLetters() {
		cfg.DeadLetterTopic, cfg.MissingTopicTimeout = c.DeadLetterTopic, c.MissingTopicTimeout
	}
	return cfg
}

// SendsDeadLetters reports whether the relay sends rows to the dead-letter topic.
func (c *Config) SendsDeadLetters() bool { return c.OnBadRecord != stop }

// Sending returns the settings for sending records beside a relay: Name, Route, Tables, Messages, Sink,
// DeadLetterTopic, Positions, StartupTimeout and DrainTimeout, and Source.Conn and Source.Publication if a database is configured. The
// error is an [*Error] that names every missing or wrong key.
func (c *Config) Sending() (relay.Config, error) {
	broker, err := c.Broker()
	cfg := relay.Config{
		Name: c.name(), Route: c.route(), Tables: c.tables(), Messages: c.Outbox.Messages, Sink: broker, DeadLetterTopic: c.DeadLetterTopic,
		Positions: c.positions(), StartupTimeout: c.StartupTimeout, DrainTimeout: c.DrainTimeout,
	}
	if c.namesSource() {
		pg, pgErr := c.Postgres()
		if err = join(err, pgErr); err == nil {
			cfg.Source.Conn, cfg.Source.Publication = &pg.Config, c.Source.Publication
		}
	}
	if err != nil {
		return relay.Config{}, err
	}
	return cfg, nil
}

// Setup returns the settings for creating publication and slot, or an [*Error] that names every missing key.
func (c *Config) Setup() (catalog.SetupConfig, error) {
	pg, err := c.Postgres()
	if err != nil {
		return catalog.SetupConfig{}, err
	}
	return catalog.SetupConfig{
		Conn: &pg.Config, Publication: c.Source.Publication, Slot: c.Source.Slot, Tables: c.tables(),
		Messages: len(c.Outbox.Messages) > 0, Updates: c.route().TakesUpdates(), Failover: c.Source.SlotFailover,
	}, nil
}

// Prune returns the settings of prune that the configuration has.
func (c *Config) Prune() (prune.Config, error) {
	pg, err := c.Postgres()
	if err != nil {
		return prune.Config{}, err
	}
	return prune.Config{Source: pg, Tables: c.tables(), Publication: c.Source.Publication, Slots: []string{c.Source.Slot}}, nil
}

// Tracer returns the tracer of the relay, nil without tracing.endpoint. version is the program's.
func (c *Config) Tracer(version string, log *slog.Logger) (*tracing.Tracer, error) {
	cfg, err := c.tracing()
	if cfg == nil || err != nil {
		return nil, err
	}
	cfg.Version = version
	return tracing.New(*cfg, log), nil
}

func (c *Config) clientID() string { return cmp.Or(c.Sink.Kafka.ClientID, c.name()) }

func (c *Config) name() string { return cmp.Or(c.Name, c.Source.Slot) }

// tables returns the tables to publish: none with outbox.messages.
func (c *Config) tables() []string {
	if len(c.Outbox.Messages) > 0 && !c.isSet("outbox.tables") {
		return nil
	}
	return c.Outbox.Tables
}

func (c *Config) route() encode.Config {
	cfg := encode.Config{
		Columns:          c.Outbox.Columns,
		Topic:            c.Outbox.Topic,
		TopicRules:       c.Outbox.TopicRules,
		Names:            c.broker().names(c),
		Reserved:         c.reserved(),
		TombstoneOnEmpty: c.Outbox.TombstoneOnEmpty,
		Place:            c.Outbox.Place,
		OnMissingColumn:  encode.Missing(c.Outbox.OnMissingColumn),
		OnUpdate:         encode.Updates(c.Outbox.OnUpdate),
		Encoding: encode.Encodings{
			Key:     format.Encoding(c.Outbox.Encoding.Key),
			Value:   format.Encoding(c.Outbox.Encoding.Value),
			Headers: format.Encoding(c.Outbox.Encoding.Headers),
		},
		LSNHeader: c.Headers.LSN,
		Debezium:  c.debezium(),
	}
	for _, h := range c.Headers.Static {
		name, value, _ := strings.Cut(h, "=")
		cfg.Static = append(cfg.Static, encode.StaticHeader{Name: name, Value: value})
	}
	return cfg
}

func (c *Config) debezium() encode.Debezium {
	d := c.Debezium
	return encode.Debezium{
		Name:           cmp.Or(d.Name, c.name()),
		ContextHeaders: d.ContextHeaders,
		Modes: connect.Modes{
			Decimal: d.Decimals, Time: d.Times, Interval: d.Intervals, HStore: d.HStore, Binary: d.Binary, MoneyDigits: &d.MoneyDigits,
		},
		KeyDelegate: format.Encoding(d.KeyDelegate), ValueDelegate: format.Encoding(d.ValueDelegate),
		Expand:    d.ExpandPayload,
		Expansion: connect.Expansion{Nulls: d.ExpandNulls, EmptyArrays: d.ExpandEmptyArrays, FieldNames: d.FieldNames},
		Exact:     d.Exact,
	}
}
