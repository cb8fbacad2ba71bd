package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
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
				log, checks := new(bytes.Buffer), 0
				cfg := Config{Positions: position.Place{Topic: "positions"}, Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}}
				r, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				storeIn(t, r, &positiontest.Store{Order: func(ctx context.Context) error {
					checks++
					return tt.check(ctx)
				}})
				for n := range pglogrepl.LSN(3) { // the first ownership ends before the check
					src := &scriptedSource{script: joinScripts(transaction(n*100+100, n*100+110, "a", 1))}
					prod := newScriptedProducer()
					s := newSessionOf(r, src, prod, n*100+10)
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- s.run(ctx) }()
					bubble.Sleep(time.Duration(n) * orderDelay)
					synctest.Wait()
					began := time.Now()
					stop()
					if err := <-ended; err != nil || prod.records() != "a/1" || src.reported != n*100+110 || bubble.Since(began) != 0 {
						t.Errorf("ownership %d sent %q, reported %s and ended after %s: %v", n, prod.records(), src.reported, bubble.Since(began), err)
					}
				}
				if warned := strings.Count(log.String(), "the broker accepts records of an older relay"); checks != 1 || warned == 1 != tt.warns {
					t.Errorf("checked %d times, warned %d times:\n%s", checks, warned, log)
				}
			})
		})
	}
}
