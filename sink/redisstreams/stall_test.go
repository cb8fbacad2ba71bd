package redisstreams

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// stalling returns the address of a server that responds to scripts if evals is set, and otherwise accepts connections and is silent.
func stalling(t *testing.T, evals bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed by the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				request := make([]byte, 4096)
				for {
					n, err := conn.Read(request)
					if err != nil {
						return
					}
					switch {
					case !evals:
					case bytes.Contains(request[:n], []byte("\r\nhello\r\n")):
						_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
					case bytes.Contains(request[:n], []byte("\r\neval\r\n")):
						_, _ = conn.Write([]byte(":1\r\n"))
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A server that accepts connections and does not respond, at once or later, fails what was asked of it.
func TestInspectOfAServerThatStalls(t *testing.T) {
	t.Parallel()
	use := sink.Use{Destinations: []sink.Destination{{Name: "orders"}}, Positions: "positions"}
	for evals, conditions := range map[bool][]string{false: {"connection"}, true: {"server", "rights", "position store"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		found := make(map[string]sink.Finding)
		for _, f := range (Config{Addrs: []string{stalling(t, evals)}}).Inspect(ctx, use) {
			found[f.Condition] = f
		}
		for _, name := range conditions {
			if f := found[name]; f.State != sink.Failed || f.Fix != reachAdvice {
				t.Errorf("scripts run: %t, %s: %+v", evals, name, f)
			}
		}
	}
}
