package network_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// pipes is a dial function. far gets the other end of each connection.
func pipes(far chan<- net.Conn) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, other := net.Pipe()
		far <- other
		return near, nil
	}
}

// Abort closes the connections that are open, and Close also those that are made later.
func TestAbortAndClose(t *testing.T) {
	far := make(chan net.Conn, 1)
	d := network.Dialer{Dial: pipes(far)}
	isClosed := func() bool {
		_, err := (<-far).Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	for range 2 {
		if _, err := d.Connect(t.Context(), "tcp", "host:1"); err != nil {
			t.Fatal(err)
		}
		if d.Abort(); !isClosed() {
			t.Error("Abort has not closed the connection")
		}
	}
	d.Close()
	_, err := d.Connect(t.Context(), "tcp", "host:1")
	if dial, ok := errors.AsType[*network.DialError](err); !ok || !errors.Is(dial, net.ErrClosed) || !isClosed() {
		t.Errorf("Connect after Close: %v", err)
	}
}

// A connection that was made while the fence has closed is not used, whether the fence is that of the request or of all.
func TestFence(t *testing.T) {
	closed := errors.New("closed")
	for _, ofAll := range []bool{false, true} {
		far, made := make(chan net.Conn, 1), 0
		d := network.Dialer{Dial: pipes(far), Connected: func() { made++ }}
		fence := func() error {
			if made > 1 {
				return closed
			}
			return nil
		}
		ctx := t.Context()
		if ofAll {
			d.Fence = fence
		} else {
			ctx = network.WithFence(ctx, fence)
		}
		first, err := d.Connect(ctx, "tcp", "host:1")
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		_ = (<-far).Close()
		_, err = d.Connect(ctx, "tcp", "host:1")
		if dial, ok := errors.AsType[*network.DialError](err); !ok || !errors.Is(dial, closed) {
			t.Errorf("Connect: %v", err)
		}
		if _, err := (<-far).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the other end reads: %v", err)
		}
	}
}

// The TLS configuration is asked for each connection, and the name of the server is that of the address.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	trusted := false
	d := network.Dialer{Timeout: time.Minute, TLS: func() (*tls.Config, error) {
		cfg := new(tls.Config)
		if trusted {
			cfg.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		}
		return cfg, nil
	}}
	addr := server.Listener.Addr().String() // is in the certificate
	_, err := d.Connect(t.Context(), "tcp", addr)
	if _, ok := errors.AsType[*network.DialError](err); !ok || sink.TLSReason(err, "server") == "" {
		t.Errorf("an unknown authority: %v", err)
	}
	trusted = true
	conn, err := d.Connect(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := conn.(*tls.Conn); !ok {
		t.Errorf("%T", conn)
	}
	_ = conn.Close()
	d.TLS = func() (*tls.Config, error) { return nil, errors.New("no such file") }
	if _, err := d.Connect(t.Context(), "tcp", addr); err == nil || err.Error() != "read the TLS settings: no such file" {
		t.Errorf("Connect: %v", err)
	}
}

// A server that does not respond to a TLS handshake, as one that waits for the end of a line, may expect no TLS.
func TestSilentHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := make(chan net.Conn, 1)
		d := network.Dialer{Dial: pipes(far), Timeout: time.Second, TLS: func() (*tls.Config, error) { return new(tls.Config), nil }}
		read := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, <-far)
			close(read)
		}()
		_, err := d.Connect(t.Context(), "tcp", "host:1")
		if want := "no response to the TLS handshake (does the server expect no TLS?): context deadline exceeded"; !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("Connect: %v, want %s", err, want)
		}
		<-read
	})
}

// First starts with the server of the index, asks the next one when a server is silent or has failed, and releases what is made
// too late.
func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released []string
		conn, server, err := network.First(t.Context(), []string{"fails", "b", "silent"}, 2, func(ctx context.Context, server string) (string, error) {
			switch server {
			case "fails":
				return "", errors.New("refused")
			case "silent":
				<-ctx.Done() // and it responds nevertheless
			}
			return server, nil
		}, func(late string) { released = append(released, late) })
		if conn != "b" || server != 1 || err != nil {
			t.Errorf("First: %q, server %d, %v", conn, server, err)
		}
		synctest.Wait()
		if fmt.Sprint(released) != "[silent]" {
			t.Errorf("released: %s", released)
		}
	})
}

// The error has that of each server. It is final only if all servers reject us.
func TestFirstFails(t *testing.T) {
	for _, test := range []struct {
		servers []string
		want    bool
	}{
		{[]string{"denies", "denies"}, true},
		{[]string{"denies", "is down"}, false},
		{[]string{"is down", "is down"}, false},
	} {
		_, _, err := network.First(t.Context(), test.servers, 0, func(_ context.Context, server string) (int, error) {
			if server == "denies" {
				return 0, fmt.Errorf("%w: wrong password", sink.ErrAccess)
			}
			return 0, errors.New("no route")
		}, func(int) {})
		if errors.Is(err, sink.ErrAccess) != test.want || strings.Count(err.Error(), "; ") != 1 {
			t.Errorf("%s: %v", test.servers, err)
		}
	}
}
