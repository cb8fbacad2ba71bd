package replication

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// waitFor names one thing to wait for: that out takes batch, that a batch is free, or that
// memory for a large message may be taken.
type waitFor struct {
	out   chan<- *Batch
	batch *Batch
	free  <-chan *Batch
	large <-chan struct{}
}

// wait is the back-pressure: until it returns nothing is read, and what is due is done.
func (r *run) wait(ctx context.Context, w waitFor) (*Batch, error) {
	select {
	case w.out <- w.batch:
		return nil, nil
	case b := <-w.free:
		return b, nil
	case <-w.large:
		return nil, nil
	default:
	}
	r.blocked = true
	r.probe.due = time.Now().Add(probeInterval)
	defer func() {
		r.blocked = false
		r.lastReceived = time.Now() // what has come meanwhile was not looked for
	}()
	for {
		r.timer.Reset(time.Until(earlier(r.due(), r.probe.due)))
		select {
		case w.out <- w.batch:
			return nil, nil
		case b := <-w.free:
			return b, nil
		case <-w.large:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case stopping := <-r.probe.result:
			r.probe.done()
			if stopping {
				r.stopping.certain = true
				r.serverStops(time.Now())
			}
		case <-r.timer.C:
			now := time.Now()
			if err := r.tick(ctx, now); err != nil {
				return nil, err
			}
			if !now.Before(r.probe.due) {
				r.probe.start(ctx, now, r.cfg.Conn, r.wire.conn.RemoteAddr())
			}
		}
	}
}

// probeInterval is how long nothing is read before the server is asked whether it is
// stopping, and how long until it is asked again.
const probeInterval = 2 * time.Second

// A probe asks whether the server is stopping by opening another connection. While nothing
// is read, a request for a reply does not arrive either, and the server would wait for us
// for as long as the sink is stalled.
type probe struct {
	due    time.Time
	result chan bool // nil: none is running
	cancel context.CancelFunc
}

// start begins a probe unless one is running.
func (p *probe) start(ctx context.Context, now time.Time, conn *pgconn.Config, server net.Addr) {
	p.due = now.Add(probeInterval)
	if p.result != nil {
		return
	}
	ctx, p.cancel = context.WithTimeout(ctx, probeInterval)
	p.result = make(chan bool, 1)
	go func() { p.result <- refusesSessions(ctx, conn, server) }() // Run waits for it in stop
}

// done forgets a probe whose result has been received.
func (p *probe) done() {
	p.cancel()
	p.result = nil
}

// stop ends a probe and waits for that.
func (p *probe) stop() {
	if p.result != nil {
		p.cancel()
		<-p.result
		p.result = nil
	}
}

// refusesSessions reports whether the server answers a new connection that it cannot take
// any now. Of one that has been streaming, this means that it shuts down.
func refusesSessions(ctx context.Context, cfg *pgconn.Config, server net.Addr) bool {
	conn, err := pgconn.ConnectConfig(ctx, sameServer(cfg, server))
	if err == nil {
		_ = conn.Close(ctx)
		return false
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == cannotConnectNow
}
