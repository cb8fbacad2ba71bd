package demo

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

const relayStreaming = string(relay.Streaming)

// Intervals of drawing the panel, printing a line, and cleaning up the ledger.
const (
	drawInterval = 200 * time.Millisecond
	lineInterval = time.Second
	tidyInterval = 10 * time.Second
)

// A watcher shows the state of the demo until end is called.
type watcher struct {
	d     *demo
	begun time.Time

	before   view // one second ago, for rates
	beforeAt time.Time
	stop     func()
}

// watch starts a watcher. ctx bounds its queries.
func (d *demo) watch(ctx context.Context) *watcher {
	w := &watcher{d: d, begun: time.Now(), beforeAt: time.Now()}
	w.before.counts = d.ledger.counts()
	interval := lineInterval
	show := func() { d.screen.say("  " + line(w.read(ctx))) }
	if d.screen.live {
		interval = drawInterval
		show = func() { d.screen.draw(panel(w.read(ctx), d.screen.style)...) }
	} else {
		d.screen.say("")
	}
	tidied := time.Now()
	w.stop = every(interval, func() {
		show()
		if now := time.Now(); now.Sub(tidied) > tidyInterval {
			tidied = now
			d.ledger.forget(now)
			d.rig.prune(ctx)
		}
	})
	return w
}

func (w *watcher) end() { w.stop() }

// read returns the current view. It is called by one goroutine.
func (w *watcher) read(ctx context.Context) view {
	now := time.Now()
	state, confirmed := w.d.relay.standing()
	v := view{
		elapsed: now.Sub(w.begun), limit: w.d.opts.For,
		counts: w.d.ledger.counts(), rate: w.before.rate,
		relay: state, confirmed: confirmed, server: w.d.rig.position(ctx),
		arrivals: w.d.consumer.arrivals(),
	}
	if w.d.crew != nil {
		v.chaos = true
		v.blows, v.strikes = w.d.crew.striker.read(strikesShown)
	}
	if v.limit > 0 {
		v.elapsed = min(v.elapsed, v.limit)
	}
	v.all, v.recent = w.d.ledger.latencies(now)
	if passed := now.Sub(w.beforeAt); passed >= time.Second || w.before.rate == 0 {
		v.rate = float64(v.rows-w.before.rows) / passed.Seconds()
	}
	if now.Sub(w.beforeAt) >= time.Second {
		w.before, w.beforeAt = v, now
	}
	return v
}

// position returns the end of the WAL; 0 if the query fails.
func (r *rig) position(ctx context.Context) pglogrepl.LSN {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var text string
	if err := r.pool.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text`).Scan(&text); err != nil {
		return 0
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0
	}
	return lsn
}
