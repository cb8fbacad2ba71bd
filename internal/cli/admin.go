package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// An adminPage is the admin server of a relay, if it has one.
type adminPage struct {
	server *admin.Server // nil: there is none
	log    *slog.Logger
}

// admin listens on admin.listen and makes relayCfg report latencies to the server. If the default port is in
// use, for instance by another relay on this machine, the relay runs without an admin server.
func (a *app) admin(ctx context.Context, cfg *config.Config, relayCfg *relay.Config, log *slog.Logger) (*adminPage, error) {
	page := &adminPage{log: log}
	if cfg.Admin.Listen == "" {
		return page, nil
	}
	var effective strings.Builder
	if err := cfg.WriteYAML(&effective); err != nil {
		return nil, command.Failed(err)
	}
	server := admin.New(admin.Config{
		Name: relayCfg.Name, Version: command.Version().Module, Commit: command.Version().Revision, Docs: command.Version().Docs(), File: cfg.File(),
		Source: command.Address(relayCfg.Source.Conn), Publication: relayCfg.Source.Publication, Slot: relayCfg.Source.Slot,
		Broker: cfg.BrokerName(), Brokers: cfg.BrokerAddresses(), Hosts: cfg.AdminHosts(), Configuration: effective.String(),
	}, log)
	err := server.Listen(ctx, cfg.Admin.Listen)
	switch {
	case err == nil:
		server.Observe(relayCfg)
		page.server = server
		log.InfoContext(ctx, "admin server", slog.String("url", "http://"+server.Addr()+"/"))
	case cfg.ListensByDefault():
		log.WarnContext(ctx, "no admin server: set admin.listen to a free port, or to nothing; until then, status and healthcheck show the process that listens there", slog.Any("err", err))
	default:
		return nil, &command.ExitError{Err: err, Exit: exit.Usage, Next: "set admin.listen to a free address, or leave it empty"}
	}
	return page, nil
}

// during runs the relay, and the admin server until the relay has stopped.
func (p *adminPage) during(ctx context.Context, relay *relay.Relay) error {
	if p.server == nil {
		return relay.Run(ctx)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var server sync.WaitGroup
	server.Go(func() {
		if err := p.server.Run(serving, relay.Stat); err != nil {
			p.log.WarnContext(serving, "admin server ended, the relay goes on", slog.Any("err", err))
		}
	})
	err := relay.Run(ctx)
	stop()
	server.Wait()
	return err
}
