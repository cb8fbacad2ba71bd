package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// An adminPage is the admin server of a relay, if it has one.
type adminPage struct {
	server *admin.Server // nil: there is none
	taken  string        // the address that it waits for; empty: it listens
	log    *slog.Logger
}

// listenInterval is how often a relay tries to listen on a port that is in use.
const listenInterval = time.Second

// admin listens on admin.listen and makes relayCfg report latencies to the server. If the default port is in
// use, for instance by another relay on this machine, the relay waits for it while it runs.
func (a *app) admin(ctx context.Context, cfg *config.Config, relayCfg *relay.Config, log *slog.Logger) (*adminPage, error) {
	page := &adminPage{log: log}
	if cfg.Admin.Listen == "" {
		return page, nil
	}
	var effective strings.Builder
	if err := cfg.WriteYAML(&effective); err != nil {
		return nil, command.Failed(err)
	}
	page.server = admin.New(admin.Config{
		Name: relayCfg.Name, Version: command.Version().Module, Commit: command.Version().Revision, Docs: command.Version().Docs(), Arguments: cfg.Arguments(),
		Source: command.Address(relayCfg.Source.Conn), Publication: relayCfg.Source.Publication, Slot: relayCfg.Source.Slot,
		Broker: cfg.BrokerName(), Brokers: cfg.BrokerAddresses(), Hosts: cfg.AdminHosts(), Configuration: effective.String(),
	}, log)
	page.server.Observe(relayCfg)
	err := page.listen(ctx, cfg.Admin.Listen)
	switch {
	case err == nil:
	case cfg.ListensByDefault():
		page.taken = cfg.Admin.Listen
		log.WarnContext(ctx, "no admin server while another process uses the port: set admin.listen to a free one, or to nothing; status and healthcheck show that process", slog.Any("err", err))
	default:
		return nil, &command.ExitError{Err: err, Exit: exit.Usage, Next: "set admin.listen to a free address, or leave it empty"}
	}
	return page, nil
}

func (p *adminPage) listen(ctx context.Context, address string) error {
	if err := p.server.Listen(ctx, address); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "admin server", slog.String("url", "http://"+p.server.Addr()+"/"))
	return nil
}

// serve runs the admin server until ctx ends. It first waits until the port is free.
func (p *adminPage) serve(ctx context.Context, stat func() relay.Stat) {
	for p.taken != "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenInterval):
		}
		if p.listen(ctx, p.taken) == nil {
			p.taken = ""
		}
	}
	if err := p.server.Run(ctx, stat); err != nil {
		p.log.WarnContext(ctx, "admin server ended, the relay goes on", slog.Any("err", err))
	}
}

// during runs the relay, and the admin server until the relay has stopped.
func (p *adminPage) during(ctx context.Context, relay *relay.Relay) error {
	if p.server == nil {
		return relay.Run(ctx)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var server sync.WaitGroup
	server.Go(func() { p.serve(serving, relay.Stat) })
	err := relay.Run(ctx)
	stop()
	server.Wait()
	return err
}
