package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// lookups find out why no stream responds to a subject: a server says the same if no stream has the subject and while the
// stream elects a leader. They look a subject up once for all records that wait for it.
type lookups struct {
	mu      sync.Mutex
	waiting map[string][]func(error) // by subject
	running sync.WaitGroup
}

// start calls done with an error that says why no stream responds.
func (u *lookups) start(ctx context.Context, l *link, subject string, done func(error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	others, running := u.waiting[subject]
	u.waiting[subject] = append(others, done)
	if running {
		return
	}
	u.running.Go(func() {
		err := whyNoResponders(ctx, l, subject)
		u.mu.Lock()
		waiting := u.waiting[subject]
		delete(u.waiting, subject)
		u.mu.Unlock()
		for _, done := range waiting {
			done(err)
		}
	})
}

func whyNoResponders(ctx context.Context, l *link, subject string) error {
	name, err := streamOf(ctx, l, subject)
	switch {
	case errors.Is(err, sink.ErrAccess): // it need not be allowed to look streams up
		return fmt.Errorf("%w: %s, or its stream has no leader", adviseMissing(subject), subject)
	case err != nil:
		return fmt.Errorf("%w to %s, and the streams cannot be looked up: %w", jetstream.ErrNoStreamResponse, subject, err)
	case name == "":
		return fmt.Errorf("%w: %s", adviseMissing(subject), subject)
	}
	return fmt.Errorf("stream %s has no leader at the moment", name)
}

// streamOf returns the name of the stream that has a subject, or "" if there is none.
func streamOf(ctx context.Context, l *link, subject string) (string, error) {
	name, err := call(ctx, l, func(ctx context.Context) (string, error) { return l.js.StreamNameBySubject(ctx, subject) })
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	return name, err
}

// openStream returns the stream that has a subject, or nil if there is none.
func openStream(ctx context.Context, l *link, subject string) (jetstream.Stream, error) {
	name, err := streamOf(ctx, l, subject)
	if err != nil || name == "" {
		return nil, err
	}
	return l.stream(ctx, name)
}
