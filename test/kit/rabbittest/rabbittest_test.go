package rabbittest_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
)

func TestMain(m *testing.M) { rabbittest.Main(m) }

const queue = "durable"

// publish creates a classic queue and writes a message to it.
func publish(t *testing.T, conn *amqp.Connection) {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publishTo(t, ch)
}

// publishTo writes a persistent message to the queue, which exists, and waits for the confirm.
func publishTo(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("confirmed %v, %v", ok, err)
	}
}

// wantMessages fails the test unless the queue has n messages.
func wantMessages(t *testing.T, url string, n int) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil || q.Messages != n {
		t.Errorf("%d messages, %v, want %d", q.Messages, err, n)
	}
}

// TestServer: a virtual host is usable, with and without TLS, with a password and with a certificate.
func TestServer(t *testing.T) {
	r := rabbittest.Real(t)
	name := r.VHostName(t)
	conn, err := amqp.Dial(r.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	publish(t, conn)

	r.Run(t, "add_user", "rabbittest", "unused")
	t.Cleanup(func() { r.Run(t, "delete_user", "rabbittest") })
	r.Run(t, "set_permissions", "--vhost", name, "rabbittest", ".*", ".*", ".*")
	secure, err := amqp.DialConfig("amqps://"+r.TLSAddr(), amqp.Config{
		Vhost: name, TLSClientConfig: r.TLSConfig(), SASL: []amqp.Authentication{&amqp.ExternalAuth{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer secure.Close()
	publish(t, secure)
	wantMessages(t, r.URL(name), 2)
}

// TestLife: a confirmed persistent message survives a kill and a restart.
func TestLife(t *testing.T) {
	r := rabbittest.Start(t, rabbittest.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a start takes more than half a minute on a busy machine
	defer cancel()
	conn, err := amqp.Dial(r.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	publish(t, conn)
	if err := r.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if r.Running() {
		t.Error("it runs after Kill")
	}
	for range 2 {
		if err := r.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		wantMessages(t, r.URL("/"), 1)
	}
}

// TestCluster: a quorum queue keeps a confirmed message when its leader is killed or paused, and elects another one.
func TestCluster(t *testing.T) {
	c := rabbittest.StartCluster(t, rabbittest.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	declare(t, c.Nodes[0].URL("/"))
	c.AwaitInSync(t, "/", queue)
	killed := c.Leader(t, "/", queue)
	if err := killed.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	paused := c.Leader(t, "/", queue)
	if paused == killed {
		t.Error("the leader that was killed is still reported")
	}
	wantMessages(t, paused.URL("/"), 1)
	if err := killed.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c.AwaitInSync(t, "/", queue)
	paused = c.Leader(t, "/", queue)
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	var next *rabbittest.Server
	for next == nil || next == paused {
		next = c.Leader(t, "/", queue)
	}
	if err := paused.Resume(); err != nil {
		t.Fatal(err)
	}
	c.AwaitInSync(t, "/", queue)
	for _, s := range c.Nodes {
		wantMessages(t, s.URL("/"), 1)
	}
}

// declare creates a quorum queue with a member on each node, and a message in it.
func declare(t *testing.T, url string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	publishTo(t, ch)
}
