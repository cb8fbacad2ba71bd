package rabbitmq

import (
	"log/slog"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// aloneChannels limits the messages that travel alone at the same time.
const aloneChannels = 16

// A link is a connection of a transport with its channels.
type link struct {
	*connection
	lost  chan struct{} // closed when the connection is lost
	alone chan struct{} // a slot for each message that travels alone

	shared *channel // for most messages; of the goroutine that calls Publish

	maxAcked atomic.Int64 // size of the largest body that was confirmed

	mu   sync.Mutex
	idle []*channel // for messages that travel alone
}

func newLink(k *connection, log *slog.Logger) *link {
	l := &link{connection: k, lost: make(chan struct{}), alone: make(chan struct{}, aloneChannels)}
	closes := k.NotifyClose(make(chan *amqp.Error, 1))
	go l.monitor(closes, log) // ends when the connection is closed
	return l
}

// monitor logs when the broker blocks the connection, and notes when it is lost.
func (l *link) monitor(closes chan *amqp.Error, log *slog.Logger) {
	for blocked := false; ; {
		reason, changed := l.alarm.state()
		switch {
		case reason != "" && !blocked:
			log.Warn("broker blocks publishing, waiting", slog.String("server", l.addr), slog.String("reason", reason))
		case reason == "" && blocked && !l.IsClosed():
			log.Info("broker accepts messages again", slog.String("server", l.addr))
		}
		blocked = reason != ""
		select {
		case <-changed:
		case <-closes: //nolint:errcheck // each message on the connection has the reason
			close(l.lost)
			return
		}
	}
}

// wait blocks until the goroutines of a closed link have ended.
func (l *link) wait() {
	<-l.lost
	l.collectors.Wait()
}

// confirmed notes the size of a body that the broker has accepted.
func (l *link) confirmed(size int64) {
	for {
		before := l.maxAcked.Load()
		if size <= before || l.maxAcked.CompareAndSwap(before, size) {
			return
		}
	}
}

// takeIdle returns an idle channel, or nil.
func (l *link) takeIdle() *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) == 0 {
		return nil
	}
	c := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return c
}

// putIdle keeps c for the next message that travels alone, or replaces it.
func (l *link) putIdle(c *channel) {
	if c.isNacking() {
		c.retire()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, c)
}
