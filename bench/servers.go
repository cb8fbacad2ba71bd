package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

const (
	startTimeout = 5 * time.Minute // a first start downloads
	stopTimeout  = 30 * time.Second
	brokerHeapMB = 1024 // as in Kafka's script
)

// servers are those that the measurements run on; what we started we stop.
type servers struct {
	bench.Servers
	postgres *pgserver.Server  // nil: given
	kafka    *kafkatest.Server // nil: given
}

func startServers(ctx context.Context, s *settings) (*servers, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	all := &servers{Servers: bench.Servers{DSN: s.dsn, Brokers: s.brokers}}
	if err := all.start(ctx, s); err != nil {
		return nil, errors.Join(err, all.stop(ctx))
	}
	return all, nil
}

func (all *servers) start(ctx context.Context, s *settings) (err error) {
	if s.dsn == "" {
		all.postgres, err = pgserver.Start(ctx, pgserver.Config{Major: s.major, Settings: map[string]string{
			"max_wal_size":   "16GB", // no checkpoint in the middle of a measurement
			"shared_buffers": "512MB",
		}})
		if err != nil {
			return fmt.Errorf("start Postgres %d: %w", s.major, err)
		}
		all.DSN = all.postgres.DSN("postgres")
	}
	if s.brokers == nil {
		all.kafka, err = kafkatest.Launch(ctx, kafkatest.Config{
			HeapMB: brokerHeapMB, JVM: kafkatest.ScriptOptions(),
			// A broker that makes thousands of partitions has no time for heartbeats.
			Properties: map[string]string{"broker.session.timeout.ms": "60000"},
		})
		if err != nil {
			return fmt.Errorf("start Kafka: %w", err)
		}
		all.Brokers = all.kafka.Addrs
	}
	return nil
}

// stop works also when ctx is done.
func (all *servers) stop(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if all.postgres != nil {
		err = all.postgres.Stop(ctx)
	}
	if all.kafka != nil {
		err = errors.Join(err, all.kafka.Stop())
	}
	return err
}
