package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// silenceAfter is how long requests may have no response before that counts as a stall. While others have outcomes, a
	// request may only wait for its turn in the Transport.
	silenceAfter = 5 * time.Second

	// stallAfter is how long a stall may last before it is logged.
	stallAfter = 5 * time.Second

	// stallInterval is how often the monitor looks for a stall.
	stallInterval = 5 * time.Second
)

// A stall is a part of a Writer that makes no progress.
type stall struct {
	since       time.Time
	reason      string
	destination string
	missing     bool // the destination does not exist
	advice      string
}

func (s stall) text() string {
	if s.destination == "" {
		return s.reason
	}
	return "destination " + s.destination + ": " + s.reason
}

// addStat adds the figures of w to s, and returns its oldest stall.
func (w *Writer) addStat(s *sink.Stat) stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.InFlightRecords = w.inFlightRecords
	s.InFlightBytes = w.inFlightBytes
	return w.oldestStall(time.Now())
}

// oldestStall returns the oldest stall, or the zero value if there is none. w.mu is held.
func (w *Writer) oldestStall(now time.Time) stall {
	var s stall
	older := func(since time.Time) bool {
		return !since.IsZero() && (s.since.IsZero() || since.Before(s.since))
	}
	if since, silent := w.silentSince(); silent && now.Sub(since) >= silenceAfter {
		cause := w.silence()
		s = stall{since: since, reason: cause.Error(), advice: cmp.Or(sink.AdviceOf(cause), w.options.ReachAdvice)}
	}
	if c := &w.connection; c.attempts > 0 && older(c.since) {
		s = stall{since: c.since, reason: c.cause.Error(), advice: cmp.Or(sink.AdviceOf(c.cause), w.options.ReachAdvice)}
	}
	var failing *lane
	for l := range w.failing {
		if older(l.since) {
			failing, s.since = l, l.since
		}
	}
	if l := failing; l != nil {
		s = stall{since: l.since, reason: l.cause.Error(), destination: l.destination.name, missing: errors.Is(l.cause, sink.ErrMissing), advice: sink.AdviceOf(l.cause)}
	}
	return s
}

// silentSince returns since when requests are outstanding and none of them has an outcome. w.mu is held.
func (w *Writer) silentSince() (since time.Time, silent bool) {
	if w.oldest == nil {
		return time.Time{}, false
	}
	since = w.oldest.start
	if w.landedAt.After(since) {
		since = w.landedAt
	}
	return since, true
}

// silence returns why the broker does not respond, as far as it is known.
func (w *Writer) silence() error {
	if e, ok := w.transport.(Explainer); ok {
		if cause := e.Silence(); cause != nil {
			return cause
		}
	}
	return fmt.Errorf("the broker at %s does not respond", w.options.Broker)
}

// monitor logs stalls, and writes the log lines of the other goroutines, until ctx ends.
func (w *Writer) monitor(ctx context.Context) {
	ticker := time.NewTicker(stallInterval)
	defer ticker.Stop()
	for {
		w.writeLines(ctx)
		select {
		case <-w.wakeMonitor:
		case <-ticker.C:
		case <-ctx.Done():
			w.writeLines(context.WithoutCancel(ctx))
			return
		}
	}
}

func (w *Writer) writeLines(ctx context.Context) {
	w.mu.Lock()
	w.logStall(time.Now())
	lines := w.logLines
	w.logLines = nil
	w.mu.Unlock()
	for _, line := range lines {
		line(ctx)
	}
}

// logStall logs a stall that is older than stallAfter, and the end of the last one. w.mu is held.
func (w *Writer) logStall(now time.Time) {
	s := w.oldestStall(now)
	switch lasted := now.Sub(s.since); {
	case s.since.IsZero() && !w.loggedStall.IsZero():
		after := now.Sub(w.loggedStall)
		w.loggedStall = time.Time{}
		w.logLines = append(w.logLines, func(ctx context.Context) {
			w.log.InfoContext(ctx, "sink recovered", slog.Duration("after", after))
		})
	case s.since.IsZero(), !w.loggedStall.IsZero(), lasted < stallAfter:
	default:
		w.loggedStall = s.since
		attrs := []slog.Attr{slog.String("reason", s.reason), slog.Duration("for", lasted)}
		if s.destination != "" {
			attrs = append(attrs, slog.String("destination", s.destination))
		}
		attrs = sink.WithFix(attrs, s.advice)
		w.logLines = append(w.logLines, func(ctx context.Context) {
			w.log.LogAttrs(ctx, slog.LevelError, "sink stalled", attrs...)
		})
	}
}
