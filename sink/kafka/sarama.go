package kafka

import (
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

// This file is all that depends on how sarama works inside, beyond what it documents.
// TestSaramaInternals fails when a new version works differently. What is relied on:
//
//   - Broker.AsyncProduce encodes its request and hands it to the connection's Write, whole and in
//     one call, before it returns, on the caller's goroutine. All other requests, such as a login
//     that is due again, come whole and in one call too.
//   - A sarama.ProduceRequest without batches ends with an empty list of topics, in flexible
//     versions followed by an empty set of tagged fields. So the batches can be put in on the way to
//     the connection: as sarama's own objects they would take several allocations and two copies of
//     everything, each time.
//   - AsyncProduce either returns an error, and then the callback is not called, or has the callback
//     called exactly once, on the reader goroutine of the connection. Broker.Close waits for it.
//   - Config.Net.Proxy.Dialer makes every connection, and without Net.TLS it is used as it is.
//   - Config.MetricRegistry is asked for metrics with a function that makes one.
//   - A code of the protocol that is joined with the broker's text is found by errors.Is and not by
//     errors.As.

const (
	produceKey = 0 // the api key of a produce request

	// What an envelope without topics ends with: an empty array, in flexible versions (KIP-482)
	// followed by an empty set of tagged fields.
	emptyTopics         = "\x00\x00\x00\x00"
	emptyTopicsFlexible = "\x01\x00"

	minProduceVersion      = 3 // the first that takes batches of format 2
	flexibleProduceVersion = 9
)

// envelope returns a produce request without its batches. sarama writes it in the version that the
// broker has been found to speak.
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

// openEnvelope returns what stands before the topics of an envelope, and whether its version is a
// flexible one.
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

// produce sends r and has answer called with what becomes of it, unless it returns an error.
// Only the goroutine that uses l may call it, and r is not used any more when it returns.
func (l *link) produce(r *request, answer sarama.ProduceCallback) error {
	l.conn.request = r
	err := l.AsyncProduce(envelope(), answer)
	l.conn.request = nil
	return err
}

// Write writes one request of sarama's. A produce request is an envelope, and its batches are put
// in; others pass as they are.
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

// A dialer is a function in the shape of proxy.Dialer, which is where sarama lets a caller
// make the connection.
type dialer func(network, addr string) (net.Conn, error)

func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

// dialWith has sarama use d for every connection.
func dialWith(d dialer, cfg *sarama.Config) {
	cfg.Net.Proxy.Enable = true
	cfg.Net.Proxy.Dialer = d
}

// noMetrics is a registry whose metrics do nothing: sarama's are per request, per topic and
// kept for ever, and the process has its own.
type noMetrics struct{ metrics.Registry }

// GetOrRegister returns a metric of the kind that m makes.
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

// codeIn returns the code at the bottom of err.
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
