package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

var (
	errLost   = errors.New("the connection was lost")
	errDenied = errors.New("the user may not read")
)

// A session that ends is followed by another one: at once if it has no error, else after a second. A final error ends them.
func TestRepeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		results := []error{nil, errLost, errLost, nil, fmt.Errorf("open: %w", sessions.Final(errDenied))}
		var starts []time.Duration
		var logged []error
		err := sessions.Repeat(t.Context(), func(context.Context) error {
			starts = append(starts, bubble.Since(began))
			return results[len(starts)-1]
		}, func(_ context.Context, err error) { logged = append(logged, err) })
		if !errors.Is(err, errDenied) || err.Error() != "open: the user may not read" {
			t.Errorf("Repeat = %v", err)
		}
		if diff := cmp.Diff([]time.Duration{0, 0, time.Second, 2 * time.Second, 2 * time.Second}, starts); diff != "" {
			t.Errorf("sessions started at (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]error{errLost, errLost}, logged, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("logged (-want +got):\n%s", diff)
		}
	})
}

// When the context ends, in a session or between two, Repeat returns nil at once, and nothing is logged of it.
func TestRepeatStops(t *testing.T) {
	t.Parallel()
	for name, session := range map[string]func(context.Context) error{
		"in a session": func(ctx context.Context) error { <-ctx.Done(); return sessions.Final(ctx.Err()) },
		"between two":  func(context.Context) error { return errLost },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				began := time.Now()
				err := sessions.Repeat(ctx, session, func(_ context.Context, err error) {
					if !errors.Is(err, errLost) {
						t.Errorf("logged %v", err)
					}
				})
				if took := bubble.Since(began); err != nil || took != 1500*time.Millisecond {
					t.Errorf("Repeat = %v after %s", err, took)
				}
			})
		})
	}
}

// An error of one function stops the others, and Run waits for them. One that returns nil stops none.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		began := time.Now()
		err := sessions.Run(t.Context(),
			func(context.Context) error { return nil },
			func(context.Context) error { bubble.Sleep(time.Second); return errDenied },
			func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				bubble.Sleep(time.Second)
				return errLost
			})
		if took := bubble.Since(began); took != 2*time.Second || !errors.Is(err, errDenied) || !errors.Is(err, errLost) || !errors.Is(cause, errDenied) {
			t.Errorf("Run = %v after %s, the others were stopped by %v", err, took, cause)
		}
	})
}
