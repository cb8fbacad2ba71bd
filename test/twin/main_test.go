package twin

import (
	"testing"

	"github.com/rcrowley/go-metrics"
)

// TestMain starts a goroutine that sarama's first Fetch would otherwise start, once for the whole
// process. In a synctest bubble, this goroutine would block the virtual time.
func TestMain(m *testing.M) {
	metrics.NewMeter().Stop()
	m.Run()
}
