package position

import "context"

// ErrTimelineUnknown is errTimelineUnknown.
var ErrTimelineUnknown = errTimelineUnknown

// ReadTimeline has c read the timeline with read during a session that began on the timeline began.
func (c *Timeline) ReadTimeline(began int32, read func(context.Context) (int32, error)) {
	c.timeline, c.read = began, read
}

// SetObsolete sets the requests that are removed when the set is stored.
func (k *ParkedKeys) SetObsolete(requests ...string) { k.setObsolete(requests) }

// Obsolete returns the requests that were not removed yet.
func (k *ParkedKeys) Obsolete() []string { return k.toRemove() }
