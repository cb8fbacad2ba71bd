package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

const (
	lookTimeout     = 10 * time.Second // of a single look at the catalog
	snapshotSpacing = time.Second      // between two snapshots in the log
)

// An observer is what a watcher needs of the source beside the stream.
type observer interface {
	Inspect(ctx context.Context) (*catalog.State, error)
	EmitSnapshot(ctx context.Context, prefix, label string) error
	Close(ctx context.Context)
}

// A watcher looks at the catalog beside the stream: a publication, a table or a slot can
// cease to deliver without a word in the stream. The stream remains the authority: that
// the watcher sees nothing ends no session.
//
// While rows flow it also writes, into the log that the stream reads, which transactions
// have been delivered when the stream comes there.
type watcher struct {
	observer observer
	interval time.Duration
	same     func(*catalog.State) bool // it is of the server that is streamed from
	check    func(context.Context, *catalog.State) error
	rows     func() uint64 // handed to the sink so far
	label    string        // of the snapshots
	emits    bool
	log      *slog.Logger

	blind   bool   // the last look failed
	mute    bool   // a snapshot could not be written since the last look
	refused string // why, logged
	emitted uint64 // rows when the last snapshot was written
}

// newWatcher returns the watcher of a session that began with state.
func (c *Relay) newWatcher(stream *replication.Stream, state *catalog.State) *watcher {
	rows := func() uint64 {
		counts, _, _ := c.flow.snapshot()
		return counts.rows
	}
	return &watcher{
		observer: catalog.Observe(stream.Config()), interval: c.cfg.WatchInterval,
		same: func(now *catalog.State) bool {
			return now.SystemID == stream.System().ID && now.InRecovery == state.InRecovery
		},
		check: func(ctx context.Context, now *catalog.State) error {
			return errors.Join(c.look(ctx, now), c.stillRoutable(ctx, now))
		},
		rows: rows, emitted: rows(), label: c.cfg.Name, emits: c.cfg.Source.MessagePrefix != "",
		log: c.log,
	}
}

// run looks until ctx ends (nil), or until a look finds what ends the session.
func (w *watcher) run(ctx context.Context) error {
	defer w.observer.Close(ctx)
	looks := time.NewTicker(w.interval)
	defer looks.Stop()
	var snapshots <-chan time.Time
	if w.emits {
		t := time.NewTicker(snapshotSpacing)
		defer t.Stop()
		snapshots = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
			if err := w.look(ctx); err != nil {
				return err
			}
		case <-snapshots:
			w.emit(ctx)
		}
	}
}

// errOtherServer: a name or an address in front of several servers led elsewhere.
var errOtherServer = errors.New("another server answered than the one that is streamed from")

func (w *watcher) look(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	state, err := w.observer.Inspect(limited)
	if err == nil && !w.same(state) {
		w.observer.Close(ctx)
		err = errOtherServer
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil && !w.blind:
		w.blind = true
		w.log.WarnContext(ctx, "catalog not watched: what ends delivery is noticed later", slog.Any("err", err))
	case err == nil && w.blind:
		w.blind = false
		w.log.InfoContext(ctx, "catalog watched again")
	}
	w.mute = false
	if err != nil {
		return nil // the stream decides whether the source is lost
	}
	return w.check(ctx, state)
}

// emit writes a snapshot if rows have been sent since the last one. After a failure it
// waits for the next look.
func (w *watcher) emit(ctx context.Context) {
	rows := w.rows()
	if rows == w.emitted || w.blind || w.mute {
		return
	}
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := w.observer.EmitSnapshot(limited, MessagePrefix, w.label)
	if err == nil {
		w.emitted, w.refused = rows, ""
		return
	}
	w.mute = true
	if text := err.Error(); ctx.Err() == nil && text != w.refused {
		w.refused = text
		w.log.WarnContext(ctx, "snapshot not written: if the slot is lost, what it had not delivered is not known", slog.Any("err", err))
	}
}

// look compares state with what was seen before in the life of the process.
func (c *Relay) look(ctx context.Context, state *catalog.State) error {
	warnings, err := c.history.Look(state)
	c.slot.set(state, c.history.LimitAt())
	for _, w := range warnings {
		level := slog.LevelWarn
		if w.Over {
			level = slog.LevelInfo
		}
		c.log.Log(ctx, level, "catalog watch", slog.String("object", w.Object), slog.String("change", w.Text))
	}
	return err
}

// stillRoutable says that a published table cannot be relayed any more. That the catalog does
// not say is left to the stream.
func (c *Relay) stillRoutable(ctx context.Context, state *catalog.State) error {
	err := c.checker.check(state, c.describe(ctx))
	if err == nil || as[*encode.ColumnError](err) {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the session is over
	}
	c.log.WarnContext(ctx, "tables not checked: what cannot be relayed is noticed later", slog.Any("err", err))
	return nil
}
