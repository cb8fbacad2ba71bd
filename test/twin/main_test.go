package twin

import (
	"testing"

	"github.com/rcrowley/go-metrics"
)

// TestMain has the goroutine started outside every bubble that sarama's first Fetch starts for
// the whole process: in a bubble it would hold up its time.
func TestMain(m *testing.M) {
	metrics.NewMeter().Stop()
	m.Run()
}
