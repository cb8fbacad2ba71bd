package inboxredis

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// A logger logs what happens to a stream: one line when trouble starts, one when it is over.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	failing bool
	missing bool // the stream does not exist; logged
}

// trouble logs why there is no session, or why it cannot continue.
func (l *logger) trouble(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isMissing(err) {
		if !l.missing {
			l.log.WarnContext(ctx, "inbox: stream does not exist, waiting for it")
		}
		l.missing = true
		return
	}
	if !l.failing {
		l.log.WarnContext(ctx, "inbox: broker unavailable, retrying", slog.Any("err", err))
	}
	l.failing = true
}

// isMissing reports whether the stream, or its group, does not exist.
func isMissing(err error) bool {
	return strings.Contains(err.Error(), "requires the key to exist") || strings.Contains(err.Error(), "NOGROUP")
}

// open logs that the trouble is over.
func (l *logger) open(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing {
		l.log.InfoContext(ctx, "inbox: broker available again")
	}
	if l.missing {
		l.log.InfoContext(ctx, "inbox: stream exists now")
	}
	l.failing, l.missing = false, false
}

func (l *logger) assigned(ctx context.Context) {
	l.log.InfoContext(ctx, "inbox: stream assigned to this instance")
}

func (l *logger) revoked(ctx context.Context) {
	l.log.InfoContext(ctx, "inbox: stream revoked from this instance")
}

func (l *logger) trimmed(ctx context.Context, n int) {
	l.log.WarnContext(ctx, "inbox: entries were trimmed before they were handled", slog.Int("entries", n))
}
