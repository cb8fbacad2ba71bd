package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func command(t *testing.T, args ...string) {
	t.Helper()
	var out strings.Builder
	if code := cli.Main(t.Context(), args, nil, &out, &out); code != 0 {
		t.Fatalf("%q: exit code %d\n%s", args, code, out.String())
	}
}

// From the order to the notification: the relay is restarted, each request is delivered twice, and the secret changes. Each
// committed order has its notifications once, and in order.
func TestWithTheRelay(t *testing.T) {
	orders, own := pgtest.Database(t), pgtest.Database(t)
	command(t, "migrate", "up", "--only", "outbox", "--dsn", orders.DSN)
	command(t, "migrate", "up", "--only", "inbox", "--dsn", own.DSN)
	secrets := []string{newSecret(1), newSecret(2)}
	file := filepath.Join(t.TempDir(), "signing")
	write := func(secrets ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(secrets, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secrets[0])
	pool, err := pgxpool.New(t.Context(), own.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	handler, err := newReceiver(t.Context(), pool, secrets, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(twice{handler})
	defer server.Close()

	relay := []string{"--dsn", orders.DSN, "--publication", "orders", "--slot", orders.Name, "--set", "sink.webhook.signing_secrets_file=" + file}
	command(t, append([]string{"setup"}, relay...)...)
	relay = append(append([]string{"run"}, relay...), "--set", "sink.webhook.url="+server.URL+"/events", "--set", "admin.listen=", "--set", "position.file="+filepath.Join(t.TempDir(), "position"))
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			var out strings.Builder
			if code := cli.Main(ctx, relay, nil, &out, &out); code != 0 {
				t.Errorf("the relay ended with %d:\n%s", code, out.String())
			}
		}()
		stop = sync.OnceFunc(func() { cancel(); <-ended })
		t.Cleanup(stop)
		return stop
	}
	stop := start()
	conn := orders.Conn(t)
	var placed []string
	for i := range 30 {
		order := "käse " + uuid.NewString()
		placed = append(placed, order)
		for _, kind := range []string{"OrderPlaced", "OrderPaid"} {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return outbox.Write(t.Context(), tx, outbox.Event{
					AggregateType: "order", AggregateID: order, Type: kind, Payload: map[string]int{"cents": 4200},
					Headers: map[string]string{"tenant": "a b"},
				})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		switch i {
		case 10:
			write(secrets[1], secrets[0])
		case 20:
			stop()
			write(secrets[1])
			start()
		}
	}
	wait.For(t, "all notifications", func() bool {
		return pgtest.QueryRow[int](t, own, `SELECT count(*)::int FROM notifications`) >= 2*len(placed)
	})
	for _, order := range placed {
		rows, err := pool.Query(t.Context(), `SELECT message FROM notifications WHERE order_id = $1 ORDER BY id`, order)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if want := []string{"OrderPlaced", "OrderPaid"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q: %v", order, got, want, err)
		}
	}
}

// twice delivers each request twice, as after a response that was lost.
type twice struct{ http.Handler }

func (h twice) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		h.Handler.ServeHTTP(w, req)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	for range 2 {
		again := req.Clone(req.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		h.Handler.ServeHTTP(answer, again)
		if answer.Code != http.StatusNoContent {
			w.WriteHeader(answer.Code)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// A request that the relay has not signed, or that somebody has changed, has no effect.
func TestForgedRequests(t *testing.T) {
	own := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), own.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	handler, err := newReceiver(t.Context(), pool, []string{newSecret(1)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, signature := range map[string]string{"none": "", "wrong": "v1," + base64.StdEncoding.EncodeToString(make([]byte, 32))} {
		req := httptest.NewRequest(http.MethodPost, "/events/order", strings.NewReader("{}"))
		req.Header.Set("webhook-id", uuid.NewString())
		req.Header.Set("webhook-timestamp", fmt.Sprint(time.Now().Unix()))
		if signature != "" {
			req.Header.Set("webhook-signature", signature)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		if answer.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d", name, answer.Code)
		}
	}
}

func newSecret(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(slices.Repeat([]byte{b}, 32))
}
