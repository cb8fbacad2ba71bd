package bearer

import (
	"context"
	"errors"
	"time"
)

// A Source gets a new token, and until when it is of use; zero: it does not say.
type Source func(ctx context.Context) (token string, expires time.Time, err error)

// ErrRefused says that asking again is of no use before somebody has changed something.
var ErrRefused = errors.New("no token is issued to us")

const (
	// fresh is how long a token serves for every login, so that connections which begin
	// together share one. One that was revoked is given up as soon.
	fresh = time.Minute
	// margin before the end of a token is for the way to the broker and for clocks.
	margin = 10 * time.Second
)

// Reuse returns a function that gets a token from source and hands it out again for a
// minute. Where source fails otherwise than with ErrRefused, the last token serves until it
// expires. The function may be called from any goroutine; only one asks the source, and the
// others wait for it, until their ctx ends.
func Reuse(source Source) func(ctx context.Context) (string, error) {
	m := &memory{source: source, sem: make(chan struct{}, 1)}
	return m.get
}

// A memory has the last token.
type memory struct {
	source Source
	sem    chan struct{} // holds a token while one looks: a mutex that a context ends

	token   string // empty: none yet
	got     time.Time
	expires time.Time // zero: not known
}

func (m *memory) get(ctx context.Context) (string, error) {
	select {
	case m.sem <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-m.sem }()
	now := time.Now()
	expired := !m.expires.IsZero() && now.After(m.expires.Add(-margin))
	if m.token != "" && !expired && now.Sub(m.got) < fresh {
		return m.token, nil
	}
	token, expires, err := m.source(ctx)
	if err != nil {
		if m.token != "" && !expired && !m.expires.IsZero() && !errors.Is(err, ErrRefused) {
			return m.token, nil
		}
		return "", err
	}
	m.token, m.got, m.expires = token, now, expires
	return token, nil
}
