package check

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m)),
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
