package webhook

import (
	"encoding/base64"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

var (
	_ sink.Broker    = Config{}
	_ sink.Inspector = Config{}
)

// TestContract runs the suite of package sinktest.
func TestContract(t *testing.T) {
	for name, tt := range map[string]struct {
		encrypted, full bool
		change          func(c *Config)
	}{
		"HTTP 1.1": {},
		"HTTP 2":   {encrypted: true, full: true},
		"four at a time, and large payloads are rejected before": {full: true, change: func(c *Config) {
			c.Concurrency, c.MaxPayloadBytes = 4, receiverLimit
			c.Secrets = func() ([]string, error) { return []string{base64.StdEncoding.EncodeToString(make([]byte, 32))}, nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.full {
				need.FullRun(t, "it takes seconds")
			}
			t.Parallel()
			sinktest.Run(t, subject{newReceiver(t, tt.encrypted), tt.change})
		})
	}
}
