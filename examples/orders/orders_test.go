package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// service returns a running service and its database.
func service(t *testing.T) (url string, db *pgtest.DB) {
	t.Helper()
	db = pgtest.Database(t)
	p := stdlib.OpenDB(*db.Conn(t).Config())
	defer p.Close()
	if _, err := migrations.Up(t.Context(), p, migrations.Config{}); err != nil {
		t.Fatal(err)
	}
	o := &orders{pool: db.Pool(t)}
	if err := o.createTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(newHandler(o, slog.New(slog.NewTextHandler(t.Output(), nil))))
	t.Cleanup(srv.Close)
	return srv.URL, db
}

// call sends a request and returns the status and the body of the response.
func call(t *testing.T, method, url, key, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

func written(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return pgtest.QueryRow[[]string](t, db, `
		SELECT coalesce(array_agg(concat_ws(' ', type, payload ->> 'customer', payload ->> 'status') ORDER BY position), '{}')
		FROM outbox WHERE aggregatetype = 'order' AND aggregateid = payload ->> 'id'`)
}

func TestAnOrdersLife(t *testing.T) {
	t.Parallel()
	url, db := service(t)
	const body = `{"customer": "ann", "cents": 4200}`
	status, order := call(t, "POST", url+"/orders", "a", body)
	id, _ := order["id"].(string)
	if want := map[string]any{"id": id, "customer": "ann", "cents": 4200.0, "status": "placed"}; status != 201 || !cmp.Equal(order, want) {
		t.Fatalf("placed: %d %v, want 201 %v", status, order, want)
	}
	for _, step := range []struct {
		method, path, key, body string
		status                  int
		want                    string
	}{
		{"POST", "", "a", body, 200, "placed"},
		{"POST", "", "a", `{"customer": "ann", "cents": 1}`, 422, "another order was placed with this Idempotency-Key"},
		{"POST", "", "", body, 400, "the header Idempotency-Key with 1 to 255 bytes is required"},
		{"POST", "", "b", `{"customer": "", "cents": 1}`, 400, "customer and cents are required"},
		{"POST", "", "b", `{"customer": "bob", "price": 1}`, 400, `json: unknown field "price"`},
		{"GET", "/" + id, "", "", 200, "placed"},
		{"GET", "/x", "", "", 404, "the order does not exist"},
		{"POST", "/01890a5d-ac96-774b-bcce-b302099a8057/pay", "", "", 404, "the order does not exist"},
		{"POST", "/" + id + "/pay", "", "", 200, "paid"},
		{"POST", "/" + id + "/pay", "", "", 200, "paid"},
		{"POST", "/" + id + "/cancel", "", "", 409, "the order is in another state"},
		{"GET", "/" + id, "", "", 200, "paid"},
	} {
		status, answer := call(t, step.method, url+"/orders"+step.path, step.key, step.body)
		got, _ := answer["error"].(string)
		if status == 200 {
			got, _ = answer["status"].(string)
		}
		if status != step.status || got != step.want {
			t.Errorf("%s %s: %d %s, want %d %s", step.method, step.path, status, got, step.status, step.want)
		}
	}
	_, other := call(t, "POST", url+"/orders", "c", `{"customer": "bob", "cents": 1}`)
	if status, _ := call(t, "POST", url+"/orders/"+other["id"].(string)+"/cancel", "", ""); status != 200 {
		t.Errorf("canceled: %d", status)
	}
	want := []string{"OrderPlaced ann placed", "OrderPaid ann paid", "OrderPlaced bob placed", "OrderCanceled bob canceled"}
	if diff := cmp.Diff(want, written(t, db)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// If many clients repeat a request at the same time, there is one order.
func TestOneOrderForAKey(t *testing.T) {
	t.Parallel()
	url, db := service(t)
	var wg sync.WaitGroup
	statuses, ids := make([]int, 8), make([]any, 8)
	for i := range statuses {
		wg.Go(func() {
			var order map[string]any
			statuses[i], order = call(t, "POST", url+"/orders", "a", `{"customer": "ann", "cents": 4200}`)
			ids[i] = order["id"]
		})
	}
	wg.Wait()
	created := 0
	for i := range statuses {
		if statuses[i] == 201 {
			created++
		}
		if statuses[i] > 201 || ids[i] != ids[0] {
			t.Errorf("request %d: %d, order %v", i, statuses[i], ids[i])
		}
	}
	if n := len(written(t, db)); created != 1 || n != 1 {
		t.Errorf("%d orders, %d events", created, n)
	}
}

// Without the outbox table the order is not placed either, and the log says how to fix it.
func TestNoOrderWithoutItsEvent(t *testing.T) {
	t.Parallel()
	url, db := service(t)
	db.Exec(t, `ALTER TABLE outbox RENAME TO elsewhere`)
	if status, _ := call(t, "POST", url+"/orders", "a", `{"customer": "ann", "cents": 4200}`); status != 503 {
		t.Errorf("status %d, want 503", status)
	}
	if n := pgtest.QueryRow[int](t, db, `SELECT count(*)::int FROM orders`); n != 0 {
		t.Errorf("%d orders", n)
	}
}

// A request that is running when the service stops gets its response.
func TestStopsGracefully(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	began, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(began)
			<-goOn
			_, _ = io.WriteString(w, "{}")
		}))
	}()
	answered := make(chan int, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			panic(err) // of a constant
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	<-began
	stop()
	for { // until new connections are refused
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			break
		}
		conn.Close()
	}
	close(goOn)
	if status := <-answered; status != 200 {
		t.Errorf("status %d", status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The error names a table that cannot be created, or an address that is in use.
func TestRunFails(t *testing.T) {
	t.Parallel()
	_, db := service(t)
	for want, args := range map[string][]string{
		"listen: ":              {"-dsn", db.DSN, "-listen", "127.0.0.1:-1"},
		"connect: ":             {"-dsn", "port=none"},
		"create table orders: ": {"-dsn", db.DSN + "&default_transaction_read_only=on"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("run %s: %v", want, err)
		}
	}
}
