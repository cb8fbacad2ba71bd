package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

const (
	startTimeout = 5 * time.Minute // a first start downloads
	stopTimeout  = 30 * time.Second
	brokerHeapMB = 1024 // as in Kafka's script
)

// servers are the servers that this program has started.
type servers struct {
	postgres *pgserver.Server  // nil: the user's
	kafka    *kafkatest.Server // nil: the user's
}

// startServers starts the servers of --own-servers, except those that a flag names.
func startServers(ctx context.Context, s *settings) (*servers, error) {
	own := &servers{}
	if !s.ownServers {
		return own, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := own.start(ctx, s); err != nil {
		return nil, errors.Join(err, own.stop(ctx))
	}
	return own, nil
}

func (own *servers) start(ctx context.Context, s *settings) (err error) {
	if !s.given("dsn") {
		own.postgres, err = pgserver.Start(ctx, pgserver.Config{Major: s.major, Settings: map[string]string{
			"max_wal_size":   "16GB", // no checkpoint during a measurement
			"shared_buffers": "512MB",
		}})
		if err != nil {
			return fmt.Errorf("start Postgres %d: %w", s.major, err)
		}
	}
	if !s.given("brokers") {
		own.kafka, err = kafkatest.Launch(ctx, kafkatest.Config{
			HeapMB: brokerHeapMB, JVM: kafkatest.ScriptOptions(),
			// A broker that creates thousands of partitions misses heartbeats.
			Properties: map[string]string{"broker.session.timeout.ms": "60000"},
		})
		if err != nil {
			return fmt.Errorf("start Kafka: %w", err)
		}
	}
	return nil
}

// settings returns the configuration for the servers.
func (own *servers) settings() []config.Setting {
	var all []config.Setting
	add := func(key, value string) {
		all = append(all, config.Setting{Key: key, Value: value, Flag: "--own-servers"})
	}
	if own.postgres != nil {
		add("source.dsn", own.postgres.DSN("postgres"))
	}
	if own.kafka != nil {
		add("sink.kafka.brokers", strings.Join(own.kafka.Addrs, ","))
	}
	return all
}

// stop stops the servers, even if ctx is done.
func (own *servers) stop(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if own.postgres != nil {
		err = own.postgres.Stop(ctx)
	}
	if own.kafka != nil {
		err = errors.Join(err, own.kafka.Stop())
	}
	return err
}
