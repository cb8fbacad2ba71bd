package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestMessage: what a consumer gets for a record.
func TestMessage(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	ch := dialChannel(t, r.URL(vhost))
	declareBound(t, ch, "events", "order.#")
	if _, err := ch.QueueDeclare("direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	cfg := configOf(r, vhost)
	cfg.ContentType = "application/json"
	w := startWriter(t, cfg, sink.WriterConfig{})
	at := time.UnixMilli(1_700_000_000_123)
	for _, rec := range []sink.Record{
		{Topic: "events", Key: []byte("42"), Value: []byte("{}"), Headers: []sink.Header{
			{Key: "id", Value: []byte("e1")},
			{Key: "eventType", Value: []byte("order.placed")},
			{Key: "x", Value: []byte("y")},
			{Key: "x", Value: nil},
			{Key: "id", Value: []byte("again")},
		}},
		{Topic: "events/order.a/b", Key: []byte{0xff}, Headers: []sink.Header{{Key: "content-type", Value: []byte("text/plain")}}},
		{Topic: "/direct", Key: []byte{}, Value: []byte{0}, Headers: []sink.Header{{Key: "id", Value: []byte(strings.Repeat("x", 256))}}},
	} {
		w.sent++
		rec.Seq, rec.Partition, rec.Timestamp = w.sent, sink.AnyPartition, at
		if err := w.Writer.Send(sinktest.Context(t), &rec); err != nil {
			t.Fatal(err)
		}
		w.AwaitAcked(int(w.sent))
	}
	w.Drain(3)
	got := append(readQueue(t, r.URL(vhost), "events"), readQueue(t, r.URL(vhost), "direct")...)
	if len(got) != 3 {
		t.Fatalf("%d messages", len(got))
	}
	ms := at.UnixMilli()
	for i, want := range []amqp.Delivery{
		{
			RoutingKey: "order.placed", MessageId: "e1", Type: "order.placed", ContentType: "application/json", Body: []byte("{}"),
			Headers: amqp.Table{KeyHeader: "42", "x": []any{"y", nil}, "id": "again", TimeHeader: ms},
		},
		{RoutingKey: "order.a/b", ContentType: "text/plain", Headers: amqp.Table{KeyHeader: []byte{0xff}, NullHeader: true, TimeHeader: ms}},
		{RoutingKey: "direct", ContentType: "application/json", Body: []byte{0}, Headers: amqp.Table{KeyHeader: "", "id": strings.Repeat("x", 256), TimeHeader: ms}},
	} {
		d := got[i]
		if d.RoutingKey != want.RoutingKey || d.MessageId != want.MessageId || d.Type != want.Type || d.ContentType != want.ContentType ||
			string(d.Body) != string(want.Body) || !reflect.DeepEqual(d.Headers, want.Headers) {
			t.Errorf("message %d: %+v, want %+v", i, d, want)
		}
		if d.DeliveryMode != amqp.Persistent || d.Timestamp.Unix() != at.Unix() {
			t.Errorf("message %d has delivery mode %d, timestamp %s", i, d.DeliveryMode, d.Timestamp)
		}
	}
}

// TestMissingExchange: messages for an exchange that does not exist, or is deleted, wait for it. Others do not.
func TestMissingExchange(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	ch := dialChannel(t, r.URL(vhost))
	declareBound(t, ch, "events", "x")
	// Until a queue is bound to a new exchange, its messages are unroutable. With an alternate exchange, they never are.
	if err := ch.ExchangeDeclare("spare", amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("late", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("late", "", "spare", false, nil); err != nil {
		t.Fatal(err)
	}
	declareLate := func() {
		t.Helper()
		if err := ch.ExchangeDeclare("late", amqp.ExchangeTopic, true, false, false, false, amqp.Table{"alternate-exchange": "spare"}); err != nil {
			t.Fatal(err)
		}
	}
	w := startWriter(t, configOf(r, vhost), sink.WriterConfig{})
	w.send("late/x", 10)
	w.send("events/x", 200)
	w.AwaitAcked(200)
	w.Await("the stall", func() bool { return w.Sink.Stat().StallMissing == "late/x" })
	declareLate()
	w.AwaitAcked(210)
	if err := ch.ExchangeDelete("late", false, false); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		w.send("events/x", 10)
		w.send("late/x", 1)
	}
	w.AwaitAcked(310)
	declareLate()
	w.Drain(320)
	for queue, want := range map[string]int{"events": 300, "late": 20} {
		ids := make(map[string]bool)
		for _, d := range readQueue(t, r.URL(vhost), queue) {
			ids[string(d.Body)] = true
		}
		if len(ids) != want {
			t.Errorf("queue %s has %d messages, want %d", queue, len(ids), want)
		}
	}
}

// TestPermissions: the least permission is enough. Messages for an exchange to which the user may not write wait.
func TestPermissions(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	ch := dialChannel(t, r.URL(vhost))
	declareBound(t, ch, "events", "x")
	declareBound(t, ch, "other", "x")
	r.Run(t, "add_user", "outbox", "pässword")
	t.Cleanup(func() { r.Run(t, "delete_user", "outbox") })
	cfg := configOf(r, vhost)
	cfg.User, cfg.Password = "outbox", password("pässword")
	if _, err := cfg.Open(sinktest.Context(t), sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("without a permission in the virtual host: %v", err)
	}
	r.Run(t, "set_permissions", "--vhost", vhost, "outbox", "^$", "^events$", "^$")
	w := startWriter(t, cfg, sink.WriterConfig{})
	if err := w.Sink.CheckDestinations(sinktest.Context(t), "events/x"); err != nil {
		t.Errorf("a destination that may be written: %v", err)
	}
	if err := w.Sink.CheckDestinations(sinktest.Context(t), "events/x", "other/x"); !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "other") {
		t.Errorf("a destination that may not be written: %v", err)
	}
	if n := len(readQueue(t, r.URL(vhost), "events")); n != 0 {
		t.Errorf("the check has written %d messages", n)
	}
	w.send("events/x", 100)
	w.AwaitAcked(100)
	w.send("other/x", 10)
	w.send("events/x", 100)
	w.AwaitAcked(200)
	w.Await("the stall", func() bool { return strings.Contains(w.Sink.Stat().StallReason, "exchange other") })
	r.Run(t, "set_permissions", "--vhost", vhost, "outbox", "^$", "^(events|other)$", "^$")
	w.Drain(210)
}

// TestLowerLimit: max_message_size is lowered while messages of that size are sent.
func TestLowerLimit(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	declareBound(t, dialChannel(t, r.URL(vhost)), "events", "x")
	r.Run(t, "eval", "application:set_env(rabbit, max_message_size, 20000).")
	t.Cleanup(func() {
		r.Run(t, "eval", fmt.Sprintf("application:set_env(rabbit, max_message_size, %d).", rabbittest.MaxMessageSize))
	})
	var rejected atomic.Int32
	w := startWriter(t, configOf(r, vhost), sink.WriterConfig{Substitute: func(rec *sink.Record, e *sink.RecordError) *sink.Record {
		if !e.TooLarge || e.Code != "PRECONDITION_FAILED" || e.Size < 30_000 {
			t.Errorf("rejected: %v", e)
		}
		rejected.Add(1)
		rec.Value = []byte("small")
		return rec
	}})
	w.send("events/x", 1)
	w.AwaitAcked(1)
	for range 5 {
		w.send("events/x", 50)
		w.sent++
		rec := &sink.Record{Seq: w.sent, Topic: "events/x", Partition: sink.AnyPartition, Value: make([]byte, 30_000)}
		if err := w.Writer.Send(sinktest.Context(t), rec); err != nil {
			t.Fatal(err)
		}
	}
	w.Drain(256)
	if rejected.Load() != 5 {
		t.Errorf("%d are rejected, want 5", rejected.Load())
	}
}

// TestBlocked: while the broker has too little memory, messages wait without an error, and Run can be stopped.
func TestBlocked(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	declareBound(t, dialChannel(t, r.URL(vhost)), "events", "x")
	w := startWriter(t, configOf(r, vhost), sink.WriterConfig{})
	w.send("events/x", 100)
	w.AwaitAcked(100)
	unblock := func() { r.Run(t, "set_vm_memory_high_watermark", "0.6") }
	r.Run(t, "set_vm_memory_high_watermark", "0.00001")
	t.Cleanup(unblock)
	w.send("events/x", 100)
	w.Await("the log line", func() bool { return strings.Contains(w.Journal.String(), "broker blocks publishing") })
	w.send("events/x", 100)
	w.Await("the alarm as the stall", func() bool { return strings.Contains(w.Sink.Stat().StallAdvice, "rabbitmqctl status") })
	if w.Acked() == 300 || w.Sink.Stat().Reconnects > 0 {
		t.Errorf("%d are acknowledged, %d reconnects", w.Acked(), w.Sink.Stat().Reconnects)
	}
	// The broker may answer a check before it says that it blocks the new connection.
	w.Await("a check to find the problem", func() bool { return w.Sink.CheckDestinations(timeout(t, time.Second), "events/x") != nil })
	inspecting := timeout(t, wait.Patience())
	w.Await("check to say it of every destination", func() bool {
		findings := configOf(r, vhost).Inspect(inspecting, sink.Use{Destinations: []sink.Destination{{Name: "events/x"}, {Name: "events/y"}}})
		t.Log(findings)
		return len(findings) == 3 && strings.Contains(findings[1].Found, "blocks publishing") && strings.Contains(findings[2].Found, "blocks publishing")
	})
	if inspecting.Err() != nil {
		t.Error("check waited for its end")
	}
	unblock()
	w.AwaitAcked(300)
	r.Run(t, "set_vm_memory_high_watermark", "0.00001")
	w.send("events/x", 100)
	w.Await("the second log line", func() bool { return strings.Count(w.Journal.String(), "broker blocks publishing, waiting") == 2 })
	enough := errors.New("enough")
	w.Stop(enough)
	if err := w.Wait(); !errors.Is(err, enough) {
		t.Errorf("Run: %v", err)
	}
}

func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestLogin: the ways to log in, and what goes wrong.
func TestLogin(t *testing.T) {
	r := rabbittest.Real(t)
	good := configOf(r, "/")
	secure := good
	secure.Servers, secure.TLS = []string{r.TLSAddr()}, func() (*tls.Config, error) { return r.TLSConfig(), nil }
	r.Run(t, "add_user", "rabbittest", "unused")
	t.Cleanup(func() { r.Run(t, "delete_user", "rabbittest") })
	r.Run(t, "set_permissions", "rabbittest", "^$", "^$", "^$")
	for name, tt := range map[string]struct {
		change func(c *Config)
		want   error // nil: it succeeds
	}{
		"password":    {func(*Config) {}, nil},
		"TLS":         {func(c *Config) { *c = secure }, nil},
		"certificate": {func(c *Config) { *c = secure; c.User, c.Password = "", nil }, nil},
		"fail-over":   {func(c *Config) { c.Servers = []string{closedPort(t), r.Addr()} }, nil},

		"wrong password":       {func(c *Config) { c.Password = password("wr0ng") }, sink.ErrAccess},
		"wrong user":           {func(c *Config) { c.User = "nobody" }, sink.ErrAccess},
		"no such virtual host": {func(c *Config) { c.VHost = "nowhere" }, sink.ErrAccess},
		"unknown authority": {func(c *Config) {
			*c = secure
			c.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: certtest.New().Pool()}, nil }
		}, sink.ErrAccess},
		"TLS without a listener": {func(c *Config) { *c = secure; c.Servers = good.Servers }, sink.ErrAccess},
		"no TLS":                 {func(c *Config) { c.Servers = secure.Servers }, sink.ErrAccess},
		"nobody listens":         {func(c *Config) { c.Servers = []string{closedPort(t)} }, sink.ErrUnreachable},
		"the password is rejected by its source": {func(c *Config) {
			c.Password = func(context.Context) (string, error) { return "", fmt.Errorf("%w: no", sink.ErrAccess) }
		}, sink.ErrAccess},
		"the password is not there yet": {func(c *Config) {
			c.Password = func(context.Context) (string, error) { return "", errors.New("no file") }
		}, sink.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.change(&cfg)
			limit := wait.Patience()
			if errors.Is(tt.want, sink.ErrUnreachable) {
				limit = 2 * time.Second
			}
			j := sinktest.NewJournal()
			on, err := cfg.Open(timeout(t, limit), j.Logger())
			if !errors.Is(err, tt.want) || err == nil != (tt.want == nil) || strings.Contains(fmt.Sprint(err, j), "wr0ng") {
				t.Fatalf("Open: %v, want %v", err, tt.want)
			}
			t.Log(err)
			if on != nil {
				on.Close()
			}
		})
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	port, err := serverproc.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Close)
	return port.Addr()
}

// TestPasswordRotation: the password is asked for each connection.
func TestPasswordRotation(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	declareBound(t, dialChannel(t, r.URL(vhost)), "events", "x")
	r.Run(t, "add_user", "rotating", "first")
	t.Cleanup(func() { r.Run(t, "delete_user", "rotating") })
	r.Run(t, "set_permissions", "--vhost", vhost, "rotating", "^$", "^events$", "^$")
	var now atomic.Value
	now.Store("first")
	cfg := configOf(r, vhost)
	cfg.User, cfg.Password = "rotating", func(context.Context) (string, error) { return now.Load().(string), nil }
	w := startWriter(t, cfg, sink.WriterConfig{})
	w.send("events/x", 10)
	w.AwaitAcked(10)
	r.Run(t, "change_password", "rotating", "second")
	r.Run(t, "close_all_user_connections", "rotating", "test")
	w.send("events/x", 10)
	w.Await("the rejected login", func() bool { return strings.Contains(w.Sink.Stat().LastError, "login") })
	now.Store("second")
	w.Drain(20)
}

// TestServerRestarts: a kill, a shutdown and a pause lose nothing, and keep the order of each key.
func TestServerRestarts(t *testing.T) {
	r := rabbittest.Start(t, rabbittest.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	setup := dialChannel(t, r.URL("/"))
	declareBound(t, setup, "events", "x")
	cfg := configOf(r, "/")
	cfg.Servers = []string{closedPort(t), r.Addr()}
	w := startWriter(t, cfg, sink.WriterConfig{})
	stop := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for {
			n++
			rec := &sink.Record{
				Seq: uint64(n), Topic: "events/x", Partition: sink.AnyPartition, Key: fmt.Append(nil, "key ", n%50), Value: fmt.Append(nil, n),
			}
			if w.Writer.Send(ctx, rec) != nil {
				return
			}
			w.Writer.Flush()
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	progress := func() {
		t.Helper()
		from := w.Acked()
		w.Await("progress", func() bool { return w.Acked() > from+200 })
	}
	progress()
	for _, end := range []func(context.Context) error{r.Kill, r.Shutdown} {
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if err := r.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		progress()
	}
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	<-time.After(20 * time.Second) // longer than the connection waits for a heartbeat
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	progress()
	close(stop)
	n := <-sent
	w.Drain(n)
	seen, last := make(map[int]bool), make(map[string]int)
	messages := readQueue(t, r.URL("/"), "events")
	for _, d := range messages {
		var i int
		if _, err := fmt.Sscan(string(d.Body), &i); err != nil {
			t.Fatal(err)
		}
		key := d.Headers[KeyHeader].(string)
		if !seen[i] && i < last[key] {
			t.Errorf("message %d appears behind %d of the same key", i, last[key])
		}
		seen[i] = true
		last[key] = max(last[key], i)
	}
	if len(seen) != n {
		t.Errorf("%d of %d messages are stored", len(seen), n)
	}
	t.Logf("%d messages, %d duplicates", n, len(messages)-n)
}

// TestInspect: the findings of check.
func TestInspect(t *testing.T) {
	r := rabbittest.Real(t)
	vhost := r.VHostName(t)
	ch := dialChannel(t, r.URL(vhost))
	declareBound(t, ch, "events", "x")
	cfg := configOf(r, vhost)
	cfg.Servers = append(cfg.Servers, closedPort(t))
	cfg.MaxMessageBytes = 100
	var got []string
	for _, f := range sinktest.Inspect(sinktest.Context(t), t, cfg, sink.Use{
		Destinations: []sink.Destination{{Name: "events/x", Largest: &sink.Record{Value: make([]byte, 200)}}, {Name: "nowhere/x"}}, DeadLetters: "/events",
	}) {
		got = append(got, fmt.Sprintf("%s %s %d", f.Condition, f.Object, f.State))
		if f.Found == "" || f.State != sink.Met && f.Fix == "" {
			t.Errorf("finding %+v", f)
		}
	}
	want := []string{
		"connection " + r.Addr() + " 0", "connection " + cfg.Servers[1] + " 1", "destination /events 0", "destination events/x 0", "size events/x 1", "destination nowhere/x 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}
