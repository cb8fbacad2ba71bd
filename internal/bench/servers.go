package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

const (
	startTimeout = 5 * time.Minute // a first start downloads
	stopTimeout  = 30 * time.Second
	brokerHeapMB = 1024 // as in Kafka's script
)

// servers are the servers that this program has started.
type servers struct {
	postgres *pgserver.Server // nil: the user's
	broker   *ownBroker       // nil: the user's
	link     *link            // to broker, for an outage; nil: none
}

// startServers starts the servers of --own-servers, except those that a flag names.
func startServers(ctx context.Context, s *settings) (*servers, error) {
	own := &servers{}
	if !s.ownServers {
		return own, nil
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := own.start(starting, s); err != nil {
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
	if s.given("brokers") {
		return nil
	}
	if own.broker, err = kinds()[s.sink](ctx); err != nil {
		return err
	}
	if s.outage > 0 && own.broker.away == nil {
		own.link, err = newLink(ctx, own.broker.addr)
	}
	return err
}

// settings returns the configuration for the servers.
func (own *servers) settings() []config.Setting {
	addr := ""
	if own.broker != nil {
		addr = own.broker.addr
	}
	return own.settingsAt(addr)
}

// throughLink returns the configuration of a relay from which the broker can be taken away.
func (own *servers) throughLink() []config.Setting {
	if own.link == nil {
		return own.settings()
	}
	return own.settingsAt(own.link.addr())
}

// away takes the broker away from a relay with the configuration of throughLink.
func (own *servers) away(ctx context.Context) error {
	if own.link == nil {
		return own.broker.away(ctx)
	}
	return own.link.away(ctx)
}

// back undoes away.
func (own *servers) back(ctx context.Context) error {
	if own.link == nil {
		return own.broker.back(ctx)
	}
	return own.link.back(ctx)
}

func (own *servers) settingsAt(addr string) []config.Setting {
	var all []config.Setting
	add := func(key, value string) {
		all = append(all, config.Setting{Key: key, Value: value, Flag: "--own-servers"})
	}
	if own.postgres != nil {
		add("source.dsn", own.postgres.DSN("postgres"))
	}
	if own.broker != nil {
		for _, key := range slices.Sorted(maps.Keys(own.broker.keys)) {
			add(key, strings.ReplaceAll(own.broker.keys[key], "%", addr))
		}
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
	if own.link != nil {
		err = errors.Join(err, own.link.stop(ctx))
	}
	if own.broker != nil {
		err = errors.Join(err, own.broker.stop())
	}
	return err
}
