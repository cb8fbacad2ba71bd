package twin

import (
	"runtime/debug"
	"testing"

	"github.com/rcrowley/go-metrics"
)

// TestMain starts a goroutine that sarama's first Fetch would otherwise start, once for the whole
// process. In a synctest bubble, this goroutine would block the virtual time.
//
// A twin keeps little of what it allocates: with the default of 100 percent, half of the CPU time is garbage collection.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	metrics.NewMeter().Stop()
	m.Run()
}
