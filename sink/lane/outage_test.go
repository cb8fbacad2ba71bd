package lane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// The first contact is retried until the broker responds, and Stat has the stall meanwhile.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, attempts, start := sinktest.NewJournal(), 0, time.Now()
		s := NewBase(Options{Broker: "host:1"}, j.Logger())
		err := s.Retry(t.Context(), func(ctx context.Context) error {
			if attempts++; attempts == 2 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			if attempts < 5 {
				return errLost
			}
			if st := s.Stat(); !st.StalledSince.Equal(start) || !strings.Contains(st.StallReason, "the connection is lost") || st.LastError == "" {
				t.Errorf("%+v", st)
			}
			return nil
		})
		if err != nil || attempts != 5 || bubble.Since(start) < attemptTimeout {
			t.Errorf("Retry: %v after %d attempts and %s", err, attempts, bubble.Since(start))
		}
		if st := s.Stat(); !st.StalledSince.IsZero() {
			t.Errorf("%+v", st)
		}
		if log := j.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "broker not reached yet") {
			t.Error(log)
		}
	})
}

func TestConnectEndsAtOnce(t *testing.T) {
	for _, class := range []error{sink.ErrAccess, sink.ErrFatal, sink.ErrMissing} {
		s := NewBase(Options{}, sinktest.NewJournal().Logger())
		err := s.Retry(t.Context(), func(context.Context) error { return fmt.Errorf("no: %w", class) })
		if !errors.Is(err, class) || !s.Stat().StalledSince.IsZero() {
			t.Errorf("Retry: %v", err)
		}
	}
}

func TestConnectUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, over)
		defer cancel()
		err := NewBase(Options{Broker: "host:1"}, sinktest.NewJournal().Logger()).Retry(ctx, func(ctx context.Context) error {
			if time.Until(must(ctx.Deadline())) < attemptTimeout {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errLost
		})
		for _, want := range []error{sink.ErrUnreachable, over, errLost} {
			if !errors.Is(err, want) {
				t.Errorf("Retry: %v, want %v", err, want)
			}
		}
		if !strings.Contains(err.Error(), "host:1") {
			t.Error(err)
		}
	})
}

func must(deadline time.Time, _ bool) time.Time { return deadline }

// An outage of position stores is a stall only while attempts go on.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sinktest.NewJournal()
		s := NewBase(Options{}, j.Logger())
		if err := s.Retry(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.outage.attempt(t.Context(), func(context.Context) error { return errBusy }); !errors.Is(err, errBusy) {
			t.Error(err)
		}
		if s.Stat().StalledSince.IsZero() {
			t.Error("no stall after a failed attempt")
		}
		bubble.Sleep(2 * outageGap)
		if st := s.Stat(); !st.StalledSince.IsZero() {
			t.Errorf("%+v", st)
		}
		n := 0
		err := s.Retry(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return errBusy
			}
			return nil
		})
		if log := j.String(); err != nil || strings.Count(log, "request to the broker failed, retrying") != 1 {
			t.Errorf("Retry: %v\n%s", err, log)
		}
		s.Reconnected()
		if st := s.Stat(); st.Reconnects != 1 {
			t.Errorf("%+v", st)
		}
	})
}
