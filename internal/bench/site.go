package bench

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// A site is the servers that a benchmark uses, and how its programs reach them.
type site struct {
	measure.Servers
	replicationFactor int16
	source, brokers   string         // for people
	relay             map[string]any // the part of the configuration that every relay gets
	floor             measure.PgRecvlogical
	environ           []string // of the relay
}

func newSite(cfg *config.Config, environ []string) (*site, error) {
	pg, err := cfg.Postgres()
	if err != nil {
		return nil, err
	}
	kafka, err := cfg.Kafka()
	if err != nil {
		return nil, err
	}
	conninfo, libpq, err := cfg.Libpq()
	if err != nil {
		return nil, err
	}
	access, err := kafkaAccess(kafka)
	if err != nil {
		return nil, err
	}
	// The configuration is in a file; variables would go before it.
	inherited := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "OUTBOX_CDC_") })
	return &site{
		Servers:           measure.Servers{DSN: string(cfg.Source.DSN), Postgres: pg, Brokers: kafka.Brokers, Kafka: access},
		replicationFactor: int16(cfg.Sink.Kafka.CreateTopics.ReplicationFactor),
		source:            command.Address(&pg.Config), brokers: strings.Join(kafka.Brokers, ","),
		relay:   kafkaSettings(cfg.Sink.Kafka),
		floor:   measure.PgRecvlogical{Conninfo: conninfo, Environ: slices.Concat(inherited, libpq)},
		environ: inherited,
	}, nil
}

// contact finds out whether the servers can be reached, and warns of what benchmarks have left behind that
// were killed.
func (on *site) contact(ctx context.Context, log *slog.Logger) error {
	found, err := measure.FindLeftovers(ctx, on.Servers)
	for _, l := range found {
		log.WarnContext(ctx, "left behind by an earlier bench", slog.String("object", l.Object), slog.String("drop", l.Drop))
	}
	return err
}

// failure is the end of a benchmark that err kept from measuring everything, or that measured something wrong.
func (on *site) failure(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	f.Where = []string{"source: " + on.source, "sink: Kafka at " + on.brokers}
	if ctx.Err() != nil {
		f.Exit, f.Next = relay.ExitUnexpected, "start again"
		return f
	}
	if e, ok := errors.AsType[*measure.ServerError](err); ok {
		f.Exit, f.Advice, f.Object = relay.ExitSource, e.Advice, on.source
		if e.Kafka {
			f.Exit, f.Object = relay.ExitSink, "Kafka at "+on.brokers
		}
	}
	return f
}
