package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An error that the operator can fix in the configuration names the keys.
func TestErrorsNameTheKeysToCheck(t *testing.T) {
	for err, key := range map[error]string{errUnreachable: "sink.kafka.brokers", errAccess: "sink.kafka.sasl"} {
		advised, ok := errors.AsType[sink.Advised](fmt.Errorf("contact Kafka: %w", err))
		if !ok || !strings.Contains(advised.Advice(), key) {
			t.Errorf("%v: the advice does not name %s", err, key)
		}
	}
}
