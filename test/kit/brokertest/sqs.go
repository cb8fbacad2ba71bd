package brokertest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// SQS starts a fake of SQS with a FIFO queue. At random, it refuses requests and single messages, and loses responses.
func SQS(t *testing.T) *Broker {
	t.Helper()
	server := awstest.Fake(t)
	return overAWS(t, server, server.Queue("events.fifo", maxMessage))
}

// SNS is like SQS, with a FIFO topic.
func SNS(t *testing.T) *Broker {
	t.Helper()
	server := awstest.Fake(t)
	return overAWS(t, server, server.Topic("events.fifo", maxMessage))
}

// maxMessage is the maximum size of a message in bytes.
const maxMessage = 256 << 10

// overAWS returns a broker with a queue or topic of a fake.
func overAWS(t *testing.T, server *awstest.Server, destination string) *Broker {
	t.Helper()
	server.SetFault(sqsTrouble)
	position := filepath.Join(t.TempDir(), "position")
	return &Broker{
		Addr: strings.TrimPrefix(server.URL, "http://"), Topic: destination, Timed: true, Once: true,
		Config: func(addr string) string {
			return fmt.Sprintf("position: {file: %q}\nsink: {sqs: {region: %s, sqs_endpoint: %q, sns_endpoint: %q}}",
				position, awstest.Region, "http://"+addr, "http://"+addr)
		},
		Collect: func(_ *testing.T, f Collect) rig.CatchUp {
			n := int64(0)
			server.Deliver(destination, func(m awstest.Message) {
				n++
				f(Arrival{
					Number: n, Key: []byte(m.Group), Value: []byte(m.Body), Stored: time.Now(),
					Header: func(name string) string { return m.Attributes[name].StringValue },
				})
			})
			return collected
		},
	}
}

// sqsTrouble is a fault for about one request in twenty.
func sqsTrouble(r awstest.Request) *awstest.Answer {
	if r.Entries == 0 {
		return nil
	}
	switch rand.IntN(100) {
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
