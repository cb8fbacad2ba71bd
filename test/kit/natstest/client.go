package natstest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const requestTimeout = 2 * time.Minute

// A Client has the addresses of servers, and how tests log in.
type Client struct {
	Addrs   []string      // host:port
	Options []nats.Option // for the connections of the tests
}

// URL returns the URLs of the servers, separated by commas.
func (c *Client) URL() string { return "nats://" + strings.Join(c.Addrs, ",nats://") }

// Connect returns a connection with more options, which is closed when the test ends.
func (c *Client) Connect(tb testing.TB, more ...nats.Option) *nats.Conn {
	tb.Helper()
	options := append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, c.Options...)
	conn, err := nats.Connect(c.URL(), append(options, more...)...)
	if err != nil {
		tb.Fatalf("connect to %s: %v", c.URL(), err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// JetStream returns a JetStream client, which is closed when the test ends.
func (c *Client) JetStream(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(c.Connect(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// Context returns a context for requests that ends with the test, or after 30 s.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), requestTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// UniqueName returns a name for a stream, bucket or subject that no other test uses.
func UniqueName(tb testing.TB) string {
	tb.Helper()
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		default:
			return '-'
		}
	}, tb.Name())
	return safe[:min(len(safe), 100)] + "-" + strings.ToLower(rand.Text()[:8])
}

// Stream creates a stream and deletes it when the test ends. An empty name becomes a unique one, and a stream without
// subjects gets one that is its name. Stream returns the name.
func (c *Client) Stream(tb testing.TB, cfg jetstream.StreamConfig) string {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = UniqueName(tb)
	}
	if len(cfg.Subjects) == 0 {
		cfg.Subjects = []string{cfg.Name}
	}
	js := c.JetStream(tb)
	if _, err := js.CreateStream(Context(tb), cfg); err != nil {
		tb.Fatalf("create stream %s: %v", cfg.Name, err)
	}
	c.DeleteStream(tb, cfg.Name)
	return cfg.Name
}

// DeleteStream deletes a stream when the test ends, if it exists then and a server can be reached.
func (c *Client) DeleteStream(tb testing.TB, name string) {
	tb.Helper()
	tb.Cleanup(func() {
		conn, err := nats.Connect(c.URL(), c.Options...)
		if err != nil {
			return // the test has stopped the server
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), requestTimeout)
		defer cancel()
		if js, err := jetstream.New(conn); err == nil {
			_ = js.DeleteStream(ctx, name)
		}
	})
}

// ReadAll returns the messages that a stream has now, in order.
func (c *Client) ReadAll(tb testing.TB, stream string) []*jetstream.RawStreamMsg {
	tb.Helper()
	js, ctx := c.JetStream(tb), Context(tb)
	s, err := js.Stream(ctx, stream)
	if err != nil {
		tb.Fatalf("stream %s: %v", stream, err)
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		tb.Fatalf("read stream %s: %v", stream, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		tb.Fatalf("read stream %s: %v", stream, err)
	}
	defer messages.Stop()
	var all []*jetstream.RawStreamMsg
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			tb.Fatalf("read stream %s: %v", stream, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, &jetstream.RawStreamMsg{
			Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp,
		})
		if meta.Sequence.Stream >= state.LastSeq || meta.NumPending == 0 {
			return all
		}
	}
}
