package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// CheckInterval is how often a connection is checked while another one does something that has no time limit.
const CheckInterval = 10 * time.Second

// leastCheck is the least time that a server has to respond to a check.
const leastCheck = 2 * time.Second

// Meanwhile calls do, and calls check after each interval until do has returned. If check fails, or its context has ended after
// another interval, at least 2 s, do's context ends with that error as its cause. When do has returned, Meanwhile waits for a
// check in progress, since a canceled statement closes its connection.
func Meanwhile(ctx context.Context, interval time.Duration, check, do func(context.Context) error) error {
	doing, cancel := context.WithCancelCause(ctx)
	checked := make(chan struct{})
	go func() { // ends with doing
		defer close(checked)
		for {
			select {
			case <-time.After(interval):
			case <-doing.Done():
				return
			}
			if err := checkOnce(ctx, max(interval, leastCheck), check); err != nil {
				cancel(err)
				return
			}
		}
	}()
	err := do(doing)
	cancel(nil)
	<-checked
	return err
}

func checkOnce(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := check(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: the server has not responded for %s", replication.ErrUnreachable, limit)
	}
	return err
}
