package cli

import (
	"runtime/debug"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// The memory limit of the garbage collector follows the sink's window, unless GOMEMLIMIT sets it.
func TestMemoryLimitFollowsTheWindow(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, test := range []struct {
		name, setting string
		beside        int64 // MiB
	}{
		{"Kafka", "OUTBOX_CDC_SINK_KAFKA_BROKERS=localhost:9092", 16},
		{"another broker", "OUTBOX_CDC_SINK_REDIS_STREAMS_ADDRESSES=localhost:6379", 32},
	} {
		cfg, err := config.Load(config.Sources{Environ: []string{test.setting}})
		if err != nil {
			t.Fatal(err)
		}
		limit := new(app).memoryLimiter(cfg)
		for _, window := range []int64{4, 32, 4} {
			limit(int(window << 20))
			if got, want := debug.SetMemoryLimit(-1)>>20, window+test.beside; got != want {
				t.Errorf("%s: the limit for a window of %d MiB is %d MiB, want %d", test.name, window, got, want)
			}
		}
		if (&app{environ: []string{"GOMEMLIMIT=100MiB"}}).memoryLimiter(cfg) != nil {
			t.Errorf("%s: GOMEMLIMIT is replaced", test.name)
		}
	}
}
