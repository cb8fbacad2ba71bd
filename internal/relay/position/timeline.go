package position

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

var (
	// ErrPromoted says that an ownership cannot continue, because the server has left its timeline.
	ErrPromoted = errors.New("the server is on another timeline than before")

	// errTimelineUnknown: a position of a standby server cannot be recorded before its timeline is known.
	errTimelineUnknown = errors.New("the timeline of the standby server cannot be read")
)

// timelineTimeout limits one read of the timeline.
const timelineTimeout = 10 * time.Second

// A Timeline makes sure that positions are recorded with the timeline to which they belong. A relay that streams from a
// standby server goes on when that server, or its primary, is promoted. A position behind the fork under the old timeline
// would be a gap for the next session. Its methods may be called from any goroutine.
type Timeline struct {
	mu       sync.Mutex
	read     func(context.Context) (int32, error) // nil: the timeline of the server does not change
	close    func(context.Context)
	timeline int32
}

// StartSession has positions recorded only if the server from which stream reads is still on the timeline of the session.
func (c *Timeline) StartSession(ctx context.Context, stream *replication.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.close != nil {
		c.close(ctx)
	}
	c.read, c.close, c.timeline = nil, nil, stream.System().Timeline
	if stream.Standby() {
		reader := replication.NewTimelineReader(stream)
		c.read, c.close = reader.Read, reader.Close
	}
}

// check returns nil if all positions that were received before the call are of the timeline of the session. Otherwise it
// returns an error that wraps ErrPromoted, or errTimelineUnknown.
func (c *Timeline) check(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timelineTimeout)
	defer cancel()
	switch now, err := c.read(ctx); {
	case err != nil:
		return fmt.Errorf("%w: %w", errTimelineUnknown, err)
	case now != c.timeline:
		return fmt.Errorf("%w: %d, the session began on %d", ErrPromoted, now, c.timeline)
	}
	return nil
}

// Close closes the connection on which the timeline is read.
func (c *Timeline) Close(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.close != nil {
		c.close(ctx)
	}
}
