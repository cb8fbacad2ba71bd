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
	// margin before the end of a token is for the way to the server and for clocks.
	margin = 10 * time.Second
)

// Reuse returns the Get of a new [Memory].
func Reuse(source Source) func(ctx context.Context) (string, error) { return NewMemory(source).Get }

// A Memory has the last token of a [Source]. Its methods may be called from any goroutine.
type Memory struct {
	source Source
	sem    chan struct{} // holds a token while one looks: a mutex that a context ends

	token   string // empty: none yet
	got     time.Time
	expires time.Time // zero: not known
}

// NewMemory returns an empty Memory.
func NewMemory(source Source) *Memory { return &Memory{source: source, sem: make(chan struct{}, 1)} }

// Get gets a token from the source and hands it out again for a minute. If the source fails otherwise than with
// ErrRefused, the last token serves until it expires. Only one goroutine asks the source, and the others wait for it,
// until their ctx ends.
func (m *Memory) Get(ctx context.Context) (string, error) {
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

// Forget drops the token, so that the next Get asks the source: a server has rejected it. It does not wait: if another
// goroutine is in Get, a new token comes anyway, or a fresh one stays.
func (m *Memory) Forget() {
	select {
	case m.sem <- struct{}{}:
		m.token = ""
		<-m.sem
	default:
	}
}
