package pump

import (
	"context"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// An updatePolicy decides what happens to updated rows, and logs the dropped ones.
type updatePolicy struct {
	onUpdate encode.Updates
	log      *slog.Logger
	byTable  map[string]*droppedUpdates
}

// droppedUpdates counts the dropped updates of a table since the last log line.
type droppedUpdates struct {
	n      int
	logged time.Time
}

// droppedLogInterval is the minimum time between two log lines about the same table.
const droppedLogInterval = time.Minute

func newUpdatePolicy(policy encode.Updates, log *slog.Logger) updatePolicy {
	if policy == "" {
		policy = encode.UpdateStop
	}
	return updatePolicy{onUpdate: policy, log: log, byTable: make(map[string]*droppedUpdates)}
}

func (u *updatePolicy) dropUpdate(ctx context.Context, rel *decoder.Relation) {
	level := slog.LevelWarn
	switch u.onUpdate {
	case encode.UpdateError:
		level = slog.LevelError
	case encode.UpdateIgnore, encode.UpdateStop:
		return
	case encode.UpdateWarn:
	}
	table := rel.Namespace + "." + rel.Name
	d := u.byTable[table]
	if d == nil {
		d = &droppedUpdates{}
		u.byTable[table] = d
	}
	d.n++
	now := time.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < droppedLogInterval {
		return
	}
	u.log.Log(ctx, level, "updates dropped",
		slog.String("table", table), slog.Int("number", d.n))
	*d = droppedUpdates{logged: now}
}
