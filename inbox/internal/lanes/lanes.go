// Package lanes handles the events of a source that has no partitions: the events of a topic and key one after the
// other, in the order in which they were added, and different keys at the same time.
package lanes

import (
	"context"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// A Group is the lanes of one session with a broker. Add is called by one goroutine.
type Group struct {
	handle func(context.Context, inbox.Event) error
	room   chan struct{} // has one element for each event that is not done
	ready  chan *lane    // of capacity cap(room): lanes with events, which no worker has
	failed chan struct{} // closed after the first error
	stop   context.CancelFunc
	wait   sync.WaitGroup

	mu    sync.Mutex
	lanes map[string]*lane // by topic and key, those that have events
	err   error            // of the first event that failed
}

// A lane is the events of a topic and key that are not done, in order. Only one worker handles a lane at a time.
type lane struct {
	name  string // empty for an event without a key, whose lane is not in Group.lanes
	items []item
}

type item struct {
	event inbox.Event
	done  func()
}

// New starts workers, which call handle until it returns an error or Close is called. At most limit events are in the
// group at a time.
func New(ctx context.Context, workers, limit int, handle func(context.Context, inbox.Event) error) *Group {
	ctx, stop := context.WithCancel(ctx)
	g := &Group{
		handle: handle, room: make(chan struct{}, limit), ready: make(chan *lane, limit), failed: make(chan struct{}), stop: stop,
		lanes: make(map[string]*lane),
	}
	for range workers {
		g.wait.Go(func() { g.work(ctx) })
	}
	return g
}

// Add adds an event. It blocks while the group is full, and returns the cause of ctx if ctx ends, or the error of the event
// that failed. When handle has returned nil for the event, a worker calls done.
func (g *Group) Add(ctx context.Context, e inbox.Event, done func()) error {
	select {
	case g.room <- struct{}{}:
	case <-g.failed:
		return g.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	it := item{event: e, done: done}
	if e.Key == nil {
		g.ready <- &lane{items: []item{it}}
		return nil
	}
	name := e.Topic + "\x00" + string(e.Key)
	g.mu.Lock()
	l := g.lanes[name]
	if l != nil {
		l.items = append(l.items, it)
		g.mu.Unlock()
		return nil
	}
	l = &lane{name: name, items: []item{it}}
	g.lanes[name] = l
	g.mu.Unlock()
	g.ready <- l
	return nil
}

// work handles the first event of a lane, and then that of another lane, until ctx is done.
func (g *Group) work(ctx context.Context) {
	for {
		var l *lane
		select {
		case l = <-g.ready:
		case <-ctx.Done():
			return
		}
		g.mu.Lock()
		first := l.items[0]
		g.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := g.handle(ctx, first.event); err != nil {
			if ctx.Err() == nil {
				g.fail(err)
			}
			return // the later events of the lane must not be handled
		}
		first.done()
		g.remove(l)
		<-g.room
	}
}

// remove removes the first event of a lane.
func (g *Group) remove(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.items[0] = item{}
	l.items = l.items[1:]
	if len(l.items) > 0 {
		g.ready <- l // each lane in ready has an element of room
	} else if l.name != "" {
		delete(g.lanes, l.name)
	}
}

func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.failed)
		g.stop()
	}
}

// Failed returns a channel that is closed when an event has failed. Then no further event is handled.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Err returns the error of the event that failed, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close stops the workers and waits for running calls of handle, whose context ends.
func (g *Group) Close() {
	g.stop()
	g.wait.Wait()
}
