// Package sessions has the loop of an adapter whose client does not reconnect by itself: one session with the broker after
// the other, beside what else the adapter runs.
package sessions

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Run calls the functions at the same time. If one of them returns an error, the context of the others ends, with the error
// as its cause. Run waits for all of them, and returns their errors.
func Run(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errs := make([]error, len(functions))
	var running sync.WaitGroup
	for i, f := range functions {
		running.Go(func() {
			if errs[i] = f(ctx); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Repeat calls session until ctx is done, and then returns nil, or until it returns a [Final] error, and then returns that
// one. If session returns nil, Repeat calls it again at once. After any other error it calls trouble and waits for a second.
func Repeat(ctx context.Context, session func(context.Context) error, trouble func(context.Context, error)) error {
	for ctx.Err() == nil {
		err := session(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if _, final := errors.AsType[*finalError](err); final {
			return err
		}
		trouble(ctx, err)
		Sleep(ctx, RetryDelay)
	}
	return nil
}

// RetryDelay is how long [Repeat] waits after an error.
const RetryDelay = time.Second

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Final returns err as an error that a retry cannot fix.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }
