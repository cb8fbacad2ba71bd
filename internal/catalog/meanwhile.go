package catalog

import (
	"context"
	"time"
)

// Meanwhile calls do, and calls check after each interval until do has returned. If check fails,
// do's context ends, and Meanwhile returns the error of check.
func Meanwhile(ctx context.Context, interval time.Duration, check, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	checked := make(chan struct{})
	go func() { // ends with ctx
		defer close(checked)
		for {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return
			}
			if err := check(ctx); err != nil {
				cancel(err)
			}
		}
	}()
	err := do(ctx)
	cancel(nil)
	<-checked
	return err
}
