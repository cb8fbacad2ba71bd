package kafka

import (
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

// This file has all code that depends on undocumented behavior of sarama. TestSaramaInternals fails if a new version
// behaves differently. We rely on this:
//
//   - Broker.AsyncProduce encodes its request and passes it to the connection's Write completely, in one call,
//     before it returns, on the caller's goroutine. So do all other requests, such as a re-authentication.
//   - A sarama.ProduceRequest without batches ends with an empty list of topics, in flexible versions followed by an
//     empty set of tagged fields. So the batches can be inserted on the way to the connection. As sarama's objects,
//     they would take several allocations and two copies.
//   - AsyncProduce either returns an error and does not call the callback, or calls the callback exactly once, on
//     the reader goroutine of the connection. Broker.Close waits for it.
//   - Config.Net.Proxy.Dialer makes every connection. Without Net.TLS, sarama uses the connection unchanged.
//   - sarama calls Config.MetricRegistry with a function that creates the metric.
//   - A FetchResponseBlock has no batches without records, but its field recordsNextOffset is the offset behind the last one.
//   - errors.Is finds an error code that is joined with the broker's text, but errors.As does not.

const (
	produceKey = 0 // the api key of a produce request

	// The end of an envelope without topics: an empty array, in flexible versions (KIP-482) followed by an
	// empty set of tagged fields.
	emptyTopics         = "\x00\x00\x00\x00"
	emptyTopicsFlexible = "\x01\x00"

	minProduceVersion      = 3 // the first version with batches of format 2
	flexibleProduceVersion = 9
)

// envelope returns a produce request without batches. sarama encodes it in the version negotiated with the broker.
func envelope() *sarama.ProduceRequest {
	return &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(produceTimeout / time.Millisecond),
		Version:      10,
	}
}

// isProduce reports whether msg is a produce request.
func isProduce(msg []byte) bool {
	return len(msg) >= 8 && binary.BigEndian.Uint32(msg) == uint32(len(msg)-4) &&
		binary.BigEndian.Uint16(msg[4:]) == produceKey
}

// openEnvelope returns the bytes of an envelope before its topics, and whether its version is flexible.
func openEnvelope(msg []byte) (head []byte, flexible bool, err error) {
	version := binary.BigEndian.Uint16(msg[6:])
	if version < minProduceVersion {
		return nil, false, sarama.ErrUnsupportedVersion
	}
	flexible = version >= flexibleProduceVersion
	empty := emptyTopics
	if flexible {
		empty = emptyTopicsFlexible
	}
	n := len(msg) - len(empty)
	if string(msg[n:]) != empty {
		return nil, false, sarama.PacketEncodingError{Info: "the produce request does not end with an empty list of topics"}
	}
	return msg[:n], flexible, nil
}

// produce sends r. Unless it returns an error, answer is called with the response or the error of the connection.
// Only the goroutine that uses l may call produce. It does not use r after it returns.
func (l *link) produce(r *request, answer sarama.ProduceCallback) error {
	l.conn.request = r
	err := l.AsyncProduce(envelope(), answer)
	l.conn.request = nil
	return err
}

// Write writes a request of sarama. It inserts the batches into a produce request, and does not change others.
func (c *watchedConn) Write(b []byte) (int, error) {
	if c.request == nil || !isProduce(b) {
		return c.Conn.Write(b)
	}
	msg, err := c.request.addBatches(b)
	if err != nil {
		return 0, err
	}
	if err := c.writeFenced(msg); err != nil {
		return 0, err
	}
	return len(b), nil
}

// A dialer is a function that implements proxy.Dialer, with which sarama makes connections.
type dialer func(network, addr string) (net.Conn, error)

func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

// dialWith makes sarama use d for every connection.
func dialWith(d dialer, cfg *sarama.Config) {
	cfg.Net.Proxy.Enable = true
	cfg.Net.Proxy.Dialer = d
}

// noMetrics is a registry whose metrics do nothing. sarama's metrics are per request and topic and are never released,
// and the process has its own.
type noMetrics struct{ metrics.Registry }

// GetOrRegister returns a metric of the type that m creates.
func (noMetrics) GetOrRegister(_ string, m any) any {
	switch m.(type) {
	case func() metrics.Meter:
		return metrics.NilMeter{}
	case func() metrics.Counter:
		return metrics.NilCounter{}
	default:
		return metrics.NilHistogram{}
	}
}

// nextOffsetOf returns the offset behind the last batch of a block, which may have no records. It returns 0 if there is none.
func nextOffsetOf(block *sarama.FetchResponseBlock) int64 {
	next := reflect.ValueOf(block).Elem().FieldByName("recordsNextOffset")
	if !next.IsValid() || next.Kind() != reflect.Pointer || next.IsNil() {
		return 0
	}
	return next.Elem().Int()
}

// codeIn returns the error code that err wraps.
func codeIn(err error) (sarama.KError, bool) {
	if k, ok := errors.AsType[sarama.KError](err); ok {
		return k, true
	}
	for _, c := range allCodes() {
		if errors.Is(err, c.code) {
			return c.code, true
		}
	}
	return 0, false
}

// messageIn returns the message of a broker that sarama has wrapped with the code k, or "" if there is none.
func messageIn(err error, k sarama.KError) string {
	for ; errors.Is(err, k); err = errors.Unwrap(err) {
		if inner := errors.Unwrap(err); inner != nil && !errors.Is(inner, k) {
			return inner.Error()
		}
	}
	return ""
}
