package sink

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A request that takes too long, and one for which no time is left, say which limit it was and what to do.
func TestLimits(t *testing.T) {
	limits := Limits{Request: time.Second, Whole: 1500 * time.Millisecond}
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the server hangs")
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), limits.Whole)
		defer cancel()
		rejected := errors.New("rejected")
		if err := limits.Ask(ctx, func(context.Context) error { return rejected }); err != rejected { //nolint:errorlint // as it is
			t.Errorf("an answer: %v", err)
		}
		if err := limits.Ask(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		for _, want := range []struct{ text, advice string }{
			{"no response within 1s: the server hangs", "find out what blocks the server, or run check with a longer --timeout"},
			{"unknown: the time limit of 1.5s was over", "fix what does not respond above, or run check with a longer --timeout"},
			{"unknown: the time limit of 1.5s was over", "fix what does not respond above, or run check with a longer --timeout"},
		} {
			err := limits.Ask(ctx, hang)
			if late, ok := errors.AsType[*LimitError](err); !ok || late.Error() != want.text || AdviceOf(err) != want.advice {
				t.Errorf("%v; %s", err, AdviceOf(err))
			}
		}
	})
}
