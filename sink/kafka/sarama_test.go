package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// A tappedConn keeps what each call of Write was given, and fails them on demand.
type tappedConn struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	fails  error
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return 0, c.fails
	}
	c.writes = append(c.writes, slices.Clone(b))
	return c.Conn.Write(b)
}

func (c *tappedConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = err
}

// written returns what every call so far was given.
func (c *tappedConn) written() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

// openTapped returns a connection of sarama's own to a broker, with nothing of ours on it.
func openTapped(t *testing.T, addr string, cfg Config) (*sarama.Broker, *tappedConn) {
	t.Helper()
	cfg.Brokers = []string{addr}
	w, err := newConnector(&cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, conn := w.config, new(tappedConn)
	if err := cfg.SASL.configureLogin(t.Context(), &config); err != nil {
		t.Fatal(err)
	}
	dialed := 0
	dialWith(func(network, addr string) (net.Conn, error) {
		dialed++
		c, err := new(net.Dialer).DialContext(t.Context(), network, addr)
		conn.Conn = c
		return conn, err
	}, &config)
	b := sarama.NewBroker(addr)
	if err := b.Open(&config); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.Connected(); !ok || dialed != 1 {
		t.Fatalf("connected: %v after %d calls of the dialer: %v", ok, dialed, err)
	}
	return b, conn
}

// TestSaramaInternals holds sarama to what sarama.go says of it.
func TestSaramaInternals(t *testing.T) {
	for _, version := range []string{"v0.11.0", "v1.0", "v2.0", "v2.1", "v2.4", "v3.9", "v4.1"} {
		t.Run("an envelope for Kafka "+version, func(t *testing.T) {
			b, conn := openTapped(t, kafkatest.Fake(t, oldBroker(version)).Addrs[0], Config{})
			defer b.Close()
			before := len(conn.written())
			answered := make(chan error, 2)
			if err := b.AsyncProduce(envelope(), func(_ *sarama.ProduceResponse, err error) { answered <- err }); err != nil {
				t.Fatal(err)
			}
			writes := conn.written()[before:]
			if len(writes) != 1 || !isProduce(writes[0]) {
				t.Fatalf("when AsyncProduce returned, its request was written in %d calls: %x", len(writes), writes)
			}
			head, flexible, err := openEnvelope(writes[0])
			if err != nil {
				t.Fatal(err)
			}
			req := kmsg.NewPtrProduceRequest()
			req.Version = int16(binary.BigEndian.Uint16(head[6:]))
			header := 4 + 2 + 2 + 4 + 2 + int(binary.BigEndian.Uint16(head[12:]))
			if flexible {
				header++
			}
			if err := req.ReadFrom(writes[0][header:]); err != nil || req.Acks != -1 || req.TimeoutMillis != 15000 || req.TransactionID != nil || len(req.Topics) > 0 {
				t.Errorf("version %d: %+v, %v", req.Version, req, err)
			}
			if req.IsFlexible() != flexible {
				t.Errorf("version %d counts as flexible: %v", req.Version, flexible)
			}
			if err := <-answered; err != nil || len(answered) > 0 {
				t.Errorf("answered with %v, and %d times more", err, len(answered))
			}
		})
	}

	t.Run("every request is one call of Write", func(t *testing.T) {
		k := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "user", password))
		b, conn := openTapped(t, k.Addrs[0], Config{SASL: login("PLAIN", "user", password)})
		defer b.Close()
		if _, err := b.GetMetadata(sarama.NewMetadataRequest(protocol(), []string{"t"})); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, msg := range conn.written() {
			if len(msg) < 8 || int(binary.BigEndian.Uint32(msg)) != len(msg)-4 {
				t.Fatalf("a call with %x", msg)
			}
			keys = append(keys, kmsg.NameForKey(int16(binary.BigEndian.Uint16(msg[4:]))))
		}
		for _, key := range []string{"ApiVersions", "SASLHandshake", "SASLAuthenticate", "Metadata"} {
			if !slices.Contains(keys, key) {
				t.Errorf("requests %q without %s", keys, key)
			}
		}
	})

	t.Run("no callback after an error", func(t *testing.T) {
		b, conn := openTapped(t, kafkatest.Fake(t).Addrs[0], Config{})
		errBroken := errors.New("broken")
		conn.fail(errBroken)
		var called atomic.Int32
		if err := b.AsyncProduce(envelope(), func(*sarama.ProduceResponse, error) { called.Add(1) }); !errors.Is(err, errBroken) {
			t.Errorf("AsyncProduce: %v", err)
		}
		_ = b.Close()
		if n := called.Load(); n != 0 {
			t.Errorf("the callback was called %d times", n)
		}
	})

	t.Run("Close waits for the callback", func(t *testing.T) {
		k := kafkatest.Fake(t, kfake.NumBrokers(1))
		arrived := make(chan struct{})
		k.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.Control.KeepControl()
			close(arrived)
			return nil, nil, true
		})
		b, _ := openTapped(t, k.Addrs[0], Config{})
		var outcomes []error // no lock: the race detector looks too
		if err := b.AsyncProduce(envelope(), func(_ *sarama.ProduceResponse, err error) { outcomes = append(outcomes, err) }); err != nil {
			t.Fatal(err)
		}
		<-arrived
		_ = b.Close()
		if len(outcomes) != 1 || outcomes[0] == nil {
			t.Errorf("outcomes %v", outcomes)
		}
	})

	t.Run("metrics are asked for with a constructor", func(t *testing.T) {
		registry := &askedRegistry{noMetrics: noMetrics{metrics.NewRegistry()}}
		cfg := Config{Brokers: kafkatest.Fake(t).Addrs}
		w, err := newConnector(&cfg, cfg.dial())
		if err != nil {
			t.Fatal(err)
		}
		w.config.MetricRegistry = registry
		l, err := w.connect(t.Context(), cfg.Brokers[0], controlTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		kinds := []string{"func() metrics.Counter", "func() metrics.Histogram", "func() metrics.Meter"}
		for _, kind := range registry.asked {
			if !slices.Contains(kinds, kind) {
				t.Errorf("sarama requests a metric with a %s", kind)
			}
		}
		if len(registry.asked) == 0 || len(registry.GetAll()) > 0 {
			t.Errorf("sarama requested %d metrics, and %d are kept", len(registry.asked), len(registry.GetAll()))
		}
	})

	t.Run("a code joined with the broker's text", func(t *testing.T) {
		err := fmt.Errorf("log in: %w", sarama.Wrap(sarama.ErrSASLAuthenticationFailed, errors.New("who are you?")))
		if k, ok := codeIn(err); !ok || k != sarama.ErrSASLAuthenticationFailed {
			t.Errorf("found %v in %v", k, err)
		}
	})
}

// An askedRegistry notes what metrics are asked for with.
type askedRegistry struct {
	noMetrics
	mu    sync.Mutex
	asked []string
}

func (r *askedRegistry) GetOrRegister(name string, m any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, fmt.Sprintf("%T", m))
	return r.noMetrics.GetOrRegister(name, m)
}
