package relay

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// Kafka may be away when the slot is lost, which is the usual reason for its loss. The relay then waits for Kafka.
func TestRefillWaitsForTheStore(t *testing.T) {
	for name, store := range map[string]*positiontest.Store{
		"unreachable": {Refuse: fmt.Errorf("%w: connection refused", sink.ErrUnreachable)},
		"silent":      {Silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := new(Relay)
				storeIn(t, r, store)
				_, err := r.readRecord(t.Context())
				if p := faultOf(err).patience; p != outage {
					t.Errorf("patience %d after %v", p, err)
				}
			})
		})
	}
}
