package bench

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/broker"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
)

// A site has the servers of a benchmark, and how its programs connect to them.
type site struct {
	measure.Servers
	broker            broker.Broker
	sink              string // kind of the broker
	replicationFactor int16
	source, brokers   string         // names for messages
	relay             map[string]any // configuration that all relays share
	floor             measure.PgRecvlogical
	environ           []string       // of the relay
	throughLink       map[string]any // configuration of a relay from which the broker can be taken away
}

func newSite(ctx context.Context, cfg *config.Config, environ []string) (*site, error) {
	pg, err := cfg.Postgres()
	if err != nil {
		return nil, err
	}
	to, err := broker.New(cfg)
	if err != nil {
		return nil, err
	}
	conninfo, libpq, err := cfg.Libpq(ctx)
	if err != nil {
		return nil, err
	}
	// The configuration is in a file, and environment variables would override it.
	inherited := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "OUTBOX_CDC_") })
	return &site{
		Servers: measure.Servers{DSN: string(cfg.Source.DSN), Postgres: pg, Broker: to},
		broker:  to, sink: cfg.SinkKind(),
		replicationFactor: int16(cfg.Sink.Kafka.CreateTopics.ReplicationFactor),
		source:            command.Address(&pg.Config), brokers: cfg.BrokerName() + " at " + strings.Join(cfg.BrokerAddresses(), ","),
		relay:   cfg.SinkSettings(),
		floor:   measure.PgRecvlogical{Conninfo: conninfo, Environ: slices.Concat(inherited, libpq)},
		environ: inherited,
	}, nil
}

// settings returns the configuration of a relay with a codec.
func (on *site) settings(compression string) map[string]any {
	settings := maps.Clone(on.relay)
	if on.sink == kafkaKind {
		settings["sink.kafka.compression"] = compression
	}
	return settings
}

// kafka returns the addresses of Kafka.
func (on *site) kafka() []string {
	brokers, _ := on.relay["sink.kafka.brokers"].([]string)
	return brokers
}

// contact checks that the servers can be reached, and logs objects that killed benchmarks have left.
func (on *site) contact(ctx context.Context, log *slog.Logger) error {
	found, err := measure.FindLeftovers(ctx, on.Servers)
	for _, l := range found {
		log.WarnContext(ctx, "found an object of an earlier bench", slog.String("object", l.Object), slog.String("drop", l.Drop))
	}
	return err
}

// failure returns the exit error of a benchmark that failed with err or measured something wrong.
func (on *site) failure(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	f.Where = []string{"source: " + on.source, "sink: " + on.brokers}
	if ctx.Err() != nil {
		f.Exit, f.Next = exit.Unexpected, "start again"
		return f
	}
	if e, ok := errors.AsType[*measure.ServerError](err); ok {
		f.Exit, f.Advice, f.Object = exit.Source, e.Advice, on.source
		if e.Broker {
			f.Exit, f.Object = exit.Sink, on.brokers
		}
	}
	return f
}
