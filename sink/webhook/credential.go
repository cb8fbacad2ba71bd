package webhook

import (
	"context"
	"sync"
	"time"
)

// credentialTime is how long a credential is used before it is asked for again.
const credentialTime = time.Second

// A credential is a secret that may change while the relay runs. While it cannot be read, requests wait.
type credential[T any] struct {
	what string // for errors
	get  func(ctx context.Context) (T, error)

	mu    sync.Mutex
	value T
	at    time.Time // of value; zero: none
}

// read returns the current value.
func (c *credential[T]) read(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < credentialTime {
		return c.value, nil
	}
	value, err := c.get(ctx)
	if err != nil {
		return value, &credentialError{c.what, err}
	}
	c.value, c.at = value, time.Now()
	return value, nil
}

// forget makes the next read ask again.
func (c *credential[T]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}
