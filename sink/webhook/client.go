package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

var errTooLarge = errors.New("the payload is larger than sink.webhook.max_payload_bytes")

// A client is the [sink.Sink] of receivers.
type client struct {
	*lane.Base

	cfg       Config
	addresses *addresses
	poster    *poster
	pauses    pauses
}

// Open implements [sink.Broker]. It asks each server that the configuration names without a wildcard with a request that has
// no event: HEAD. Any response will do. If there are several servers, one that responds is enough.
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	opened, err := newClient(c, log)
	if err != nil {
		return nil, err
	}
	if err := opened.contact(ctx); err != nil {
		opened.poster.close()
		return nil, err
	}
	return opened, nil
}

func newClient(cfg Config, log *slog.Logger) (*client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &client{cfg: cfg.withDefaults()}
	var err error
	if c.addresses, err = newAddresses(cfg); err != nil {
		return nil, err
	}
	c.Base = lane.NewBase(lane.Options{
		Broker: c.servers(), ReachAdvice: reachAdvice, Illegal: Names{c.addresses}.Illegal, Prepare: c.prepare,
		WindowRecords: c.cfg.WindowRecords, WindowBytes: c.cfg.WindowBytes,
	}, log)
	c.poster = newPoster(&c.cfg, c.Base)
	return c, nil
}

// servers returns host:port of the server, or the list of them.
func (c *client) servers() string {
	var all []string
	for _, u := range c.addresses.contacts() {
		port, _ := portOf(u) // was valid
		all = append(all, u.Hostname()+":"+port)
	}
	if len(all) == 0 {
		all = c.cfg.Origins
	}
	return strings.Join(all, ", ")
}

// contact reads the secrets, and asks all servers at the same time, until one of them has responded.
func (c *client) contact(ctx context.Context) error {
	contacts := c.addresses.contacts()
	return c.Retry(ctx, func(ctx context.Context) error {
		if err := c.readSecrets(ctx); err != nil {
			return err
		}
		errs := make([]error, len(contacts))
		var asking errgroup.Group
		for i, u := range contacts {
			asking.Go(func() error {
				errs[i] = c.contactServer(ctx, u)
				return nil
			})
		}
		_ = asking.Wait() // the errors are in errs
		for _, err := range errs {
			if err == nil {
				return nil
			}
		}
		return errors.Join(errs...)
	})
}

// readSecrets reads everything that a request needs.
func (c *client) readSecrets(ctx context.Context) error {
	if c.poster.secrets != nil {
		if _, err := c.poster.secrets.read(ctx); err != nil {
			return err
		}
	}
	if c.poster.authorization != nil {
		if _, err := c.poster.authorization.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// contactServer returns nil if the server responds. The error wraps sink.ErrAccess if a retry does not help.
func (c *client) contactServer(ctx context.Context, u *url.URL) error {
	at := &address{url: u, trusted: true}
	got, err := c.poster.sendEmpty(ctx, http.MethodHead, at)
	switch {
	case err == nil && got.code == http.StatusProxyAuthRequired:
		return accessError(&statusError{u.String(), got.code, lookup(got.code)})
	case err == nil:
		return nil
	case errors.As(err, new(*privateError)):
		return requestError(at, err, false, c.cfg.Timeout)
	case sink.TLSReason(err, "receiver") != "":
		return accessError(fmt.Errorf("%s: %w", u, explain(err, c.cfg.Timeout)))
	}
	return fmt.Errorf("%s: %w", u, explain(err, c.cfg.Timeout))
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return c.NewWriterOver(&transport{client: c, servers: make(map[string]*server)}, cfg)
}

// CheckDestinations implements [sink.Sink]. Without CheckMethod, it asks no receiver.
func (c *client) CheckDestinations(ctx context.Context, destinations ...string) error {
	return c.CheckEach(ctx, destinations, func(ctx context.Context, name string) error {
		at, illegal := c.addresses.find(name)
		if c.cfg.CheckMethod == "" || illegal != "" {
			return nil
		}
		got, err := c.poster.sendEmpty(ctx, c.cfg.CheckMethod, at)
		switch {
		case err != nil:
			return requestError(at, err, false, c.cfg.Timeout)
		case got.code == http.StatusNotFound || got.code == http.StatusGone:
			return sink.ErrMissing
		}
		return nil
	})
}

// Close implements [sink.Sink].
func (c *client) Close() error {
	c.poster.close()
	return nil
}
