package redisstreams

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// TestContract runs the suite of package sinktest.
func TestContract(t *testing.T) {
	sinktest.Run(t, newSubject(redistest.Start(t, redistest.Config{}), Config{}))
}
