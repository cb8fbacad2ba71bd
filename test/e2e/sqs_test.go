package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestRelayOverSQS: the service refuses requests and single messages at random, and loses responses.
func TestRelayOverSQS(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it takes seconds, and TestRelayOverJetStream runs always")
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		server := awstest.Fake(t)
		server.SetFault(sqsTrouble)
		url := server.Queue("orders.fifo", 1<<18)
		relaysOver(t, overSQS(t, server.URL, url, func(*testing.T) ([]awstest.Message, bool) { return server.Messages(url), false }))
	})
	t.Run("topic", func(t *testing.T) {
		t.Parallel()
		server := awstest.Fake(t)
		server.SetFault(sqsTrouble)
		arn := server.Topic("orders.fifo", 1<<18)
		relaysOver(t, overSQS(t, server.URL, arn, func(*testing.T) ([]awstest.Message, bool) { return server.Messages(arn), false }))
	})
}

func sqsTrouble(r awstest.Request) *awstest.Answer {
	if r.Entries == 0 {
		return nil
	}
	switch rand.IntN(40) {
	case 0:
		return &awstest.Answer{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"}
	case 1:
		return &awstest.Answer{Status: http.StatusInternalServerError, Code: "InternalError", Store: true}
	case 2:
		return &awstest.Answer{Status: http.StatusBadRequest, Code: "RequestThrottled"}
	case 3, 4:
		return &awstest.Answer{Status: http.StatusOK, Code: "InternalError", Fail: func(entry int) bool { return entry%2 == 0 }}
	}
	return nil
}

// overSQS is a broker at an endpoint. read returns the messages that the destination has had, as far as
// they are known, and whether there may be more.
func overSQS(t *testing.T, endpoint, destination string, read func(*testing.T) (messages []awstest.Message, more bool)) rig.Broker {
	t.Helper()
	config := fmt.Sprintf("position: {file: %q}\nsink: {sqs: {region: %s, sqs_endpoint: %q, sns_endpoint: %q}}",
		filepath.Join(t.TempDir(), "position"), awstest.Region, endpoint, endpoint)
	return rig.Broker{Topic: destination, Config: config, Collect: func(t *testing.T, take func(rig.Received)) rig.CatchUp {
		t.Helper()
		c := &sqsCollector{t: t, read: read, take: take}
		var reading sync.WaitGroup
		reading.Go(func() {
			for t.Context().Err() == nil {
				if c.collect() {
					continue
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-t.Context().Done():
				}
			}
		})
		t.Cleanup(reading.Wait)
		return func(context.Context) error {
			for c.collect() {
			}
			return nil
		}
	}}
}

// An sqsCollector passes the messages of a destination to a test.
type sqsCollector struct {
	t    *testing.T
	read func(*testing.T) ([]awstest.Message, bool)
	take func(rig.Received)

	mu    sync.Mutex
	taken int
}

// collect passes what is known, and reports whether there may be more.
func (c *sqsCollector) collect() (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t.Context().Err() != nil {
		return false
	}
	messages, more := c.read(c.t)
	for _, m := range messages[c.taken:] {
		at, err := time.Parse(time.RFC3339Nano, m.Attributes["outbox_timestamp"].StringValue)
		if err != nil || m.Group != m.Attributes["outbox_key"].StringValue || m.Duplication != m.Attributes["id"].StringValue {
			c.t.Errorf("message of group %q with the deduplication id %q: %v", m.Group, m.Duplication, err)
		}
		c.take(rig.Received{
			Offset: int64(c.taken), Key: []byte(m.Attributes["outbox_key"].StringValue), Value: []byte(m.Body),
			ID: m.Attributes["id"].StringValue, Type: m.Attributes["eventType"].StringValue, Timestamp: at,
		})
		c.taken++
	}
	return more
}
