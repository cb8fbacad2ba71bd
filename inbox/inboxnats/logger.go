package inboxnats

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A logger logs one line when trouble starts and one when it is over.
type logger struct {
	log *slog.Logger

	mu       sync.Mutex
	problem  string // that was logged last; empty while messages are consumed
	assigned bool
}

func (l *logger) joining(ctx context.Context) { l.log.InfoContext(ctx, "inbox: joining the consumer") }

// trouble logs why there is no session, once for each error.
func (l *logger) trouble(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem == err.Error() {
		return
	}
	l.problem = err.Error()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		l.log.WarnContext(ctx, "inbox: stream does not exist, waiting for it")
		return
	}
	l.log.WarnContext(ctx, "inbox: consumer unavailable, retrying", slog.Any("err", err))
}

// open logs that the trouble is over.
func (l *logger) open(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != "" {
		l.log.InfoContext(ctx, "inbox: consumer available again")
	}
	l.problem = ""
}

// delivers logs that this instance gets the messages.
func (l *logger) delivers(ctx context.Context, assigned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case assigned && !l.assigned:
		l.log.InfoContext(ctx, "inbox: messages assigned to this instance")
	case !assigned && l.assigned:
		l.log.InfoContext(ctx, "inbox: messages revoked from this instance")
	}
	l.assigned = assigned
}

func (l *logger) catchUp(ctx context.Context, after uint64) {
	l.log.InfoContext(ctx, "inbox: deliveries missed, reading the stream", slog.Uint64("after", after))
}

// watch logs when the connection is lost and when it is back, until ctx is done.
func (l *logger) watch(ctx context.Context, conn *nats.Conn) {
	changed := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer conn.RemoveStatusListener(changed)
	lost := false
	for {
		select {
		case status := <-changed:
			switch {
			case status == nats.CONNECTED && lost:
				l.log.InfoContext(ctx, "inbox: broker available again")
			case status != nats.CONNECTED && !lost:
				l.log.WarnContext(ctx, "inbox: broker unavailable, retrying", slog.String("status", status.String()))
			}
			lost = status != nats.CONNECTED
			if status == nats.CLOSED {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
