package owner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// TestOrderOfRelaysIsCheckedOnce: a relay checks the broker once, whatever the number of ownerships. Neither records
// nor the end of an ownership wait for the check.
func TestOrderOfRelaysIsCheckedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		check func(ctx context.Context) error
		warns bool
	}{
		"broker without a fence": {func(context.Context) error { return fmt.Errorf("broker: %w", sink.ErrOlderAccepted) }, true},
		"no broker of that kind": {func(context.Context) error { return fmt.Errorf("broker: %w", errors.ErrUnsupported) }, false},
		"broker with a fence":    {func(context.Context) error { return nil }, false},
		"no right":               {func(context.Context) error { return sink.ErrAccess }, false},
		"no answer": {func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checks := 0
				o, log := newTestOwner(t, settings{place: position.Place{Topic: "positions"}})
				storeIn(t, o, &positiontest.Store{Order: func(ctx context.Context) error {
					checks++
					return tt.check(ctx)
				}})
				for n := range pglogrepl.LSN(3) { // the first ownership ends before the check
					src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(n*100+100, n*100+110, "a", 1))}
					prod := newScriptedProducer()
					s := newSessionOf(o, src, prod, n*100+10)
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- s.run(ctx) }()
					bubble.Sleep(time.Duration(n) * orderDelay)
					synctest.Wait()
					began := time.Now()
					stop()
					if err := <-ended; err != nil || prod.records() != "a/1" || src.Confirmed != n*100+110 || bubble.Since(began) != 0 {
						t.Errorf("ownership %d sent %q, reported %s and ended after %s: %v", n, prod.records(), src.Confirmed, bubble.Since(began), err)
					}
				}
				if warned := strings.Count(log.String(), "the broker accepts records of an older relay"); checks != 1 || warned == 1 != tt.warns {
					t.Errorf("checked %d times, warned %d times:\n%s", checks, warned, log)
				}
			})
		})
	}
}
