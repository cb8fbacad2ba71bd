package inboxrabbit

import (
	"context"
	"errors"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A logger logs one line when trouble starts and one when it is over. One goroutine uses it.
type logger struct {
	log      *slog.Logger
	failing  bool // since a session ended
	missing  bool // the queue or an exchange does not exist; logged
	delivers bool // messages of this session have arrived
}

func (l *logger) joining(ctx context.Context) {
	l.log.InfoContext(ctx, "inbox: joining the consumers of the queue")
}

// trouble logs why a session ended or none could be opened.
func (l *logger) trouble(ctx context.Context, err error) {
	l.delivers = false
	answer, ok := errors.AsType[*amqp.Error](err)
	if missing := ok && answer.Code == amqp.NotFound; missing {
		if !l.missing {
			l.log.WarnContext(ctx, "inbox: queue or exchange does not exist, waiting for it")
		}
		l.missing = true
		return
	}
	if !l.failing {
		l.log.WarnContext(ctx, "inbox: broker unavailable, retrying", slog.Any("err", err))
	}
	l.failing = true
}

// open logs that the trouble is over.
func (l *logger) open(ctx context.Context) {
	if l.failing {
		l.log.InfoContext(ctx, "inbox: broker available again")
	}
	if l.missing {
		l.log.InfoContext(ctx, "inbox: queue and exchanges exist now")
	}
	l.failing, l.missing = false, false
}

// assigned logs that this instance gets the messages of the queue.
func (l *logger) assigned(ctx context.Context) {
	if !l.delivers {
		l.log.InfoContext(ctx, "inbox: messages assigned to this instance")
	}
	l.delivers = true
}
