package inboxnats_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxnats"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestContract(t *testing.T) {
	t.Parallel()
	inboxtest.Contract(t, single(t))
}

func TestOutage(t *testing.T) {
	t.Parallel()
	inboxtest.Outage(t, single(t))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	inboxtest.Restart(t, single(t))
}

// BenchmarkLatency uses the default settings, and a server in this process.
func BenchmarkLatency(b *testing.B) { inboxtest.Latency(b, single(b)) }

// single starts a server in this process and returns its Subject.
func single(tb testing.TB) inboxtest.Subject {
	tb.Helper()
	server := natstest.Start(tb)
	s := subject(tb, &server.Client, 1)
	s.Restart = func(tb testing.TB) { tb.Helper(); server.Restart(tb) }
	return s
}

// subject returns the Subject of servers. The topic is a stream with one subject, and the group a durable consumer.
func subject(tb testing.TB, s *natstest.Client, replicas int) inboxtest.Subject {
	tb.Helper()
	js := s.JetStream(tb)
	return inboxtest.Subject{
		Create: func(tb testing.TB, topic string) {
			tb.Helper()
			_, err := js.CreateStream(natstest.Context(tb), jetstream.StreamConfig{Name: topic, Subjects: []string{topic + ".>"}, Replicas: replicas})
			if err != nil {
				tb.Fatal(err)
			}
		},
		Publish: func(tb testing.TB, topic string, messages ...inboxtest.Message) {
			tb.Helper()
			for _, m := range messages {
				publish(tb, js, topic+".order", m)
			}
		},
		Run: func(ctx context.Context, addr, group, topic string, p *inbox.Processor) error {
			conn, err := connect(s, addr)
			if err != nil {
				return err
			}
			defer conn.Close()
			js, err := jetstream.New(conn)
			if err != nil {
				return err
			}
			return inboxnats.Run(ctx, p, inboxnats.Config{
				JetStream: js, Stream: topic, Durable: group, AckWait: time.Second, PinnedTTL: 1500 * time.Millisecond, MaxAckPending: 40,
			})
		},
		Acknowledged: func(tb testing.TB, group, topic string) int {
			tb.Helper()
			consumer, err := js.Consumer(natstest.Context(tb), topic, group)
			if err != nil {
				tb.Fatal(err)
			}
			stream, err := js.Stream(natstest.Context(tb), topic)
			if err != nil {
				tb.Fatal(err)
			}
			info := consumer.CachedInfo()
			return int(stream.CachedInfo().State.Msgs) - int(info.NumPending) - info.NumAckPending
		},
		Proxy: func(tb testing.TB) *faultproxy.Proxy { tb.Helper(); return faultproxy.Start(tb, s.Addrs[0]) },
		Log: inboxtest.Lines{
			Joining: "inbox: joining the consumer", Assigned: "inbox: messages assigned to this instance",
			Missing: "inbox: stream does not exist, waiting for it",
			Lost:    "inbox: broker unavailable, retrying", Back: "inbox: broker available again",
		},
	}
}

func connect(s *natstest.Client, addr string) (*nats.Conn, error) {
	url := s.URL()
	if addr != "" {
		url = "nats://" + addr
	}
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.IgnoreDiscoveredServers())
}

// publish writes a message as the relay does.
func publish(tb testing.TB, js jetstream.JetStream, subject string, m inboxtest.Message) {
	tb.Helper()
	header := nats.Header{}
	for name, value := range map[string]string{"outbox_key": m.Key, "id": m.ID, "eventType": m.Type} {
		if value != "" {
			header[name] = []string{value}
		}
	}
	if m.ID != "" {
		header[jetstream.MsgIDHeader] = []string{m.ID}
	}
	ctx := natstest.Context(tb)
	for {
		err := publishOnce(ctx, js, &nats.Msg{Subject: subject, Header: header, Data: []byte(m.Payload)})
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			tb.Fatal(err)
		case !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded):
			tb.Fatal(err)
		}
	}
}

// publishOnce publishes a message and waits a second for the response. If the server is restarted and the client has not
// noticed it, the request is lost, and there is no response. A message that was stored after all is dropped because of its id.
func publishOnce(ctx context.Context, js jetstream.JetStream, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := js.PublishMsg(ctx, m)
	return err
}

// While a handler runs, the server is told that its message is in progress, and so are those that wait behind it.
func TestInProgress(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := s.JetStream(t)
	stream := s.Stream(t, jetstream.StreamConfig{})
	told := make(chan string, 1<<16)
	if _, err := s.Connect(t).Subscribe("$JS.ACK."+stream+".>", func(m *nats.Msg) {
		if string(m.Data) == "+WPI" {
			told <- m.Subject
		}
	}); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	p := inboxtest.Processor(t, func(ctx context.Context, _ pgx.Tx, _ inbox.Event) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	start(t, p, inboxnats.Config{JetStream: js, Stream: stream, Durable: "d", AckWait: time.Second, Concurrency: 1})
	for range 2 { // one waits
		publish(t, js, stream, inboxtest.Message{Key: "k", ID: uuid.NewString(), Type: "A", Payload: "{}"})
	}
	messages := make(map[string]bool)
	for len(messages) < 2 {
		subject := wait.Receive(t, "messages in progress", told)
		messages[strings.Split(subject, ".")[5]] = true // the sequence number in the stream
	}
	close(release)
	wait.For(t, "2 effects", func() bool { return p.Stat().Types["A"].Handled == 2 })
}

// An event whose handler takes longer than AckWait is not delivered again.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it takes longer than AckWait, which the machine must extend in time")
	const ackWait = 2 * time.Second // a busy machine must extend it in time
	s := natstest.Start(t)
	js := s.JetStream(t)
	stream := s.Stream(t, jetstream.StreamConfig{})
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error {
		<-time.After(ackWait * 5 / 4)
		return nil
	})
	start(t, p, inboxnats.Config{JetStream: js, Stream: stream, Durable: "d", AckWait: ackWait, Concurrency: 1})
	for range 2 { // one waits
		publish(t, js, stream, inboxtest.Message{Key: "k", ID: uuid.NewString(), Type: "A", Payload: "{}"})
	}
	wait.For(t, "2 effects", func() bool { return p.Stat().Types["A"].Handled == 2 })
	consumer, err := js.Consumer(natstest.Context(t), stream, "d")
	if err != nil {
		t.Fatal(err)
	}
	if n := consumer.CachedInfo().Delivered.Consumer; n != 2 {
		t.Errorf("2 messages were delivered %d times", n)
	}
}

// A consumer and its stream are deleted and created again while an instance runs. The sequence numbers start at 1 again.
func TestStreamCreatedAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := s.JetStream(t)
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	start(t, p, inboxnats.Config{JetStream: js, Stream: "S", Durable: "d"})
	for round := range uint64(2) {
		if _, err := js.CreateStream(natstest.Context(t), jetstream.StreamConfig{Name: "S"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			publish(t, js, "S", inboxtest.Message{Key: "k", ID: uuid.NewString(), Type: "A", Payload: "{}"})
		}
		wait.For(t, "3 effects", func() bool { return p.Stat().Types["A"].Handled == 3*(round+1) })
		if err := js.DeleteStream(natstest.Context(t), "S"); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs the adapter until the test ends.
func start(t *testing.T, p *inbox.Processor, cfg inboxnats.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- inboxnats.Run(ctx, p, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// Run does not use a durable consumer whose settings could lose events.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := s.JetStream(t)
	stream := s.Stream(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"a", "b"}})
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	for want, settings := range map[string]jetstream.ConsumerConfig{
		"does not have the ack policy explicit":                       {AckPolicy: jetstream.AckAllPolicy},
		"has max_deliver, after which the server drops a message":     {AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3},
		"has headers_only, so messages have no payload":               {AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true},
		"has other subjects than Config.Subjects; change one of them": {AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "b"},
		"consumer is not a pull consumer":                             {AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: "x"},
	} {
		settings.Durable = "d"
		var err error
		if settings.DeliverSubject != "" {
			_, err = js.CreatePushConsumer(t.Context(), stream, settings)
		} else {
			_, err = js.CreateConsumer(t.Context(), stream, settings)
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
		err = inboxnats.Run(ctx, p, inboxnats.Config{JetStream: js, Stream: stream, Durable: "d", Subjects: []string{"a"}})
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want %s", err, want)
		}
		if err := js.DeleteConsumer(t.Context(), stream, "d"); err != nil {
			t.Fatal(err)
		}
	}
	for want, cfg := range map[string]inboxnats.Config{
		"inboxnats: Config.JetStream is nil":        {Stream: "S", Durable: "d"},
		"inboxnats: Config.Stream is empty":         {JetStream: js, Durable: "d"},
		"inboxnats: Config.Durable is empty":        {JetStream: js, Stream: "S"},
		"inboxnats: a number of Config is negative": {JetStream: js, Stream: "S", Durable: "d", Concurrency: -1},
	} {
		if err := inboxnats.Run(t.Context(), p, cfg); err == nil || err.Error() != want {
			t.Errorf("Run = %v, want %s", err, want)
		}
	}
}

// The rights of the documentation are enough.
func TestRights(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "x"},
			{Username: "service", Password: "x", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"$JS.API.STREAM.INFO.OUTBOX", "$JS.API.STREAM.MSG.GET.OUTBOX", "$JS.API.DIRECT.GET.OUTBOX",
					"$JS.API.CONSUMER.*.OUTBOX.>", "$JS.API.CONSUMER.MSG.NEXT.OUTBOX.>", "$JS.ACK.OUTBOX.>",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	})
	s.Options = []nats.Option{nats.UserInfo("admin", "x")}
	js := s.JetStream(t)
	s.Stream(t, jetstream.StreamConfig{Name: "OUTBOX", Subjects: []string{"orders"}, AllowDirect: true})
	var violations atomic.Int32
	conn := s.Connect(t, nats.UserInfo("service", "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { violations.Add(1) }))
	service, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for range n {
			publish(t, js, "orders", inboxtest.Message{Key: "k", ID: uuid.NewString(), Type: "A", Payload: "{}"})
		}
	}
	add(3)
	// Another instance has got messages and crashed: the adapter reads them from the stream.
	cfg := inboxnats.Config{JetStream: service, Stream: "OUTBOX", Durable: "d", Subjects: []string{"orders"}, AckWait: time.Second}
	durable, err := js.CreateConsumer(t.Context(), "OUTBOX", jetstream.ConsumerConfig{
		Durable: "d", FilterSubject: "orders", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, AckWait: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	fetched, err := durable.FetchNoWait(2)
	if err != nil {
		t.Fatal(err)
	}
	for range fetched.Messages() {
		continue // without an acknowledgement
	}
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	start(t, p, cfg)
	wait.For(t, "3 effects", func() bool { return p.Stat().Types["A"].Handled == 3 })
	add(1)
	wait.For(t, "4 effects", func() bool { return p.Stat().Types["A"].Handled == 4 })
	wait.For(t, "the acknowledgements", func() bool {
		info, err := durable.Info(t.Context())
		return err == nil && info.NumAckPending == 0
	})
	if n := violations.Load(); n != 0 {
		t.Errorf("%d requests without the right", n)
	}
}

// The stream and the consumer have three replicas. Each node of the cluster is killed once while handlers run.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	s := subject(t, &c.Client, 3)
	killed := 0
	s.Restart = func(tb testing.TB) {
		tb.Helper()
		node := c.Nodes[killed%len(c.Nodes)]
		killed++
		node.Kill(tb)
		<-time.After(2 * time.Second) // for the others to elect leaders
		node.Restart(tb)
	}
	inboxtest.Restart(t, s)
}
