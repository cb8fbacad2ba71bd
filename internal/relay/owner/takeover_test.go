package owner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// A store that does not respond in time counts as unreachable, whatever it returns later.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancelCause(t.Context())
		end(streamtest.ErrLost)
		refused := errors.New("refused")
		for name, tc := range map[string]struct {
			ctx  context.Context
			ask  func(context.Context) error
			want error
		}{
			"it answers":           {t.Context(), func(context.Context) error { return nil }, nil},
			"it refuses":           {t.Context(), func(context.Context) error { return refused }, refused},
			"it cannot be reached": {t.Context(), func(context.Context) error { return sink.ErrUnreachable }, position.ErrNoStore},
			"it takes too long":    {t.Context(), func(ctx context.Context) error { <-ctx.Done(); return refused }, position.ErrNoStore},
			"the session is over":  {ended, func(context.Context) error { return refused }, streamtest.ErrLost},
		} {
			if err := position.Try(tc.ctx, time.Second, tc.ask); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// While the store takes its time, the relay checks that it holds the slot, so that the fence stays open and the attempt
// may take longer than Postgres keeps a silent session. If the slot is lost, the attempt ends.
func TestSlotIsCheckedWhileTheStoreIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		hold := func(context.Context) error { checks++; return nil }
		slow := func(ctx context.Context) error {
			return position.Try(ctx, position.Timeout, func(ctx context.Context) error { return pause(ctx, 4*time.Second) })
		}
		if err := catalog.Meanwhile(t.Context(), 1600*time.Millisecond, hold, slow); err != nil || checks != 2 {
			t.Errorf("%v after %d checks", err, checks)
		}
		taken := func(context.Context) error { return fault.ErrSlotTaken }
		began := time.Now()
		if err := catalog.Meanwhile(t.Context(), time.Second, taken, slow); !errors.Is(err, fault.ErrSlotTaken) || bubble.Since(began) != time.Second {
			t.Errorf("%v after %s", err, bubble.Since(began))
		}
	})
}
