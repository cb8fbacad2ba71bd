package demo

import (
	"context"
	"net"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// A relaying is what relays in a demo: one relay in this process, or a [crew] of processes.
type relaying interface {
	// run relays until ctx ends, and then until the records in flight are acknowledged.
	run(ctx context.Context) error

	// standing returns the state of the relay, and the confirmed position.
	standing() (state string, confirmed pglogrepl.LSN)

	// serve serves the live page until ctx ends.
	serve(ctx context.Context) error
}

// An inProcess is a relay in this process.
type inProcess struct {
	relay *relay.Relay
	page  *admin.Server
}

// openInProcess creates the relay, and prints the address of its live page.
func (d *demo) openInProcess(ctx context.Context) (*inProcess, error) {
	cfg := d.rig.relayConfig()
	page := admin.New(admin.Config{
		Name: cfg.Name, Version: d.opts.Version, Docs: d.opts.Docs,
		Source:      net.JoinHostPort(cfg.Source.Conn.Host, strconv.Itoa(int(cfg.Source.Conn.Port))) + "/" + cfg.Source.Conn.Database,
		Publication: cfg.Source.Publication, Slot: cfg.Source.Slot, Broker: d.rig.kind.title, Brokers: d.rig.broker.addrs,
	}, d.log)
	err := d.screen.step("live page", func(func(string)) (string, error) {
		if err := page.Listen(ctx, "127.0.0.1:0"); err != nil {
			return "", err
		}
		page.Observe(&cfg)
		return "http://" + page.Addr() + "/", nil
	})
	if err != nil {
		return nil, err
	}
	r, err := relay.New(cfg, d.log)
	if err != nil {
		return nil, err
	}
	return &inProcess{relay: r, page: page}, nil
}

func (p *inProcess) run(ctx context.Context) error { return p.relay.Run(ctx) }

func (p *inProcess) serve(ctx context.Context) error { return p.page.Run(ctx, p.relay.Stat) }

func (p *inProcess) standing() (state string, confirmed pglogrepl.LSN) {
	stat := p.relay.Stat()
	return string(stat.State), stat.Confirmed
}
