package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

func config(s *natstest.Server) Config {
	return Config{Servers: s.Addrs, RequestTimeout: 500 * time.Millisecond}
}

// Each row of the table of error codes gives the outcome that package sink has for its class.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for _, r := range codeTable() {
		err := errorOf(r.code, "some description")
		rejected, isRejected := errors.AsType[*sink.RecordError](err)
		switch {
		case r.class == nil:
			if isRejected || errors.Is(err, sink.ErrMissing) || errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrFatal) {
				t.Errorf("%d: %v is not retried", r.code, err)
			}
		case errors.Is(r.class, errTooLarge):
			if !isRejected || !rejected.TooLarge {
				t.Errorf("%d: %v is not a rejected record that is too large", r.code, err)
			}
		default:
			if !errors.Is(err, sink.ErrAccess) || sink.AdviceOf(err) == "" {
				t.Errorf("%d: %v", r.code, err)
			}
			continue
		}
		if !strings.Contains(err.Error(), r.text) {
			t.Errorf("%d: %v does not say %q", r.code, err, r.text)
		}
	}
	if err := errorOf(codeStoreFailed, tooLargeForStore); !strings.Contains(err.Error(), "larger than a file") {
		t.Errorf("a message that is too large for the store: %v", err)
	}
	if err := errorOf(12345, "what the server says"); !strings.Contains(err.Error(), "what the server says") || errors.Is(err, sink.ErrFatal) {
		t.Errorf("an unknown code: %v", err)
	}
}

// Records that a server can never store are rejected; the others are delivered.
func TestRejectedRecords(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 200_000 })
	small := s.Stream(t, jetstream.StreamConfig{MaxMsgSize: 1000})
	large := s.Stream(t, jetstream.StreamConfig{})
	long := make([]byte, 70_000)
	for _, test := range []struct {
		name   string
		change func(rec *sink.Record)
		want   string
		large  bool
	}{
		{"max_msg_size", func(rec *sink.Record) { rec.Topic, rec.Value = small, long }, "max_msg_size", true},
		{"headers", func(rec *sink.Record) { rec.Headers = append(rec.Headers, sink.Header{Key: "x", Value: long}) }, "headers are larger", true},
		{"max_payload", func(rec *sink.Record) { rec.Value = make([]byte, 200_001) }, "max_payload", true},
		{"a wildcard", func(rec *sink.Record) { rec.Topic += ".*" }, "wildcard", false},
		{"a command", func(rec *sink.Record) { rec.Topic = "$JS.API.STREAM.DELETE." + small }, "reserves", false},
		{"a line end", func(rec *sink.Record) { rec.Topic += "\r\nPUB x 0" }, "contains", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, config(s), sink.WriterConfig{})
			r.sendRows(large, 10, 3)
			r.AwaitAcked(10)
			rec := r.row(large, "k")
			test.change(rec)
			r.send(rec)
			r.Writer.Flush()
			rejected, ok := errors.AsType[*sink.RecordError](r.Wait())
			if !ok || rejected.Seq != 11 || rejected.TooLarge != test.large || !strings.Contains(rejected.Error(), test.want) {
				t.Errorf("Run: %v", rejected)
			}
		})
	}
}

// While a stream is full and its discard policy is new, records wait. They are stored when there is space.
func TestFullStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for name, cfg := range map[string]jetstream.StreamConfig{
		"messages":    {MaxMsgs: 5},
		"bytes":       {MaxBytes: 1200},
		"per subject": {MaxMsgsPerSubject: 5, DiscardNewPerSubject: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Discard = jetstream.DiscardNew
			stream := s.Stream(t, cfg)
			r := newRig(t, config(s), sink.WriterConfig{})
			r.sendRows(stream, 20, 20)
			r.Await("a retry", func() bool { return strings.Contains(r.Sink.Stat().LastError, "the stream is full") })
			r.Await("5 records", func() bool { return r.Acked() >= 4 })
			js, err := s.JetStream(t).Stream(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			r.Writer.CloseSend()
			for !r.Ended() {
				if err := js.Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
				select {
				case <-time.After(5 * time.Millisecond):
				case <-sinktest.Context(t).Done():
				}
			}
			if err := r.Wait(); err != nil || r.Acked() != 20 {
				t.Errorf("Run: %v, %d are acknowledged", err, r.Acked())
			}
		})
	}
}

// A record for a subject without a stream waits until somebody adds it, and the log says how.
func TestMissingStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	there, missing := s.Stream(t, jetstream.StreamConfig{}), natstest.UniqueName(t)
	r := newRig(t, config(s), sink.WriterConfig{})
	r.sendRows(missing, 20, 5)
	r.sendRows(there, 20, 5)
	r.AwaitAcked(20) // those of the other stream
	r.awaitLog("nats stream add")
	r.Await("the stall", func() bool { return r.Sink.Stat().StallMissing == missing })
	if advice := r.Sink.Stat().StallAdvice; !strings.Contains(advice, "nats stream add") {
		t.Errorf("advice %q", advice)
	}
	s.Stream(t, jetstream.StreamConfig{Name: missing})
	r.Drain(40)
}

// Records for a missing stream are rejected if the caller gives up.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	r := newRig(t, config(s), sink.WriterConfig{GiveUp: func(sink.Missing) bool { return true }})
	r.sendRows(natstest.UniqueName(t), 1, 1)
	if rejected, ok := errors.AsType[*sink.RecordError](r.Wait()); !ok || !errors.Is(rejected, sink.ErrMissing) {
		t.Errorf("Run: %v", rejected)
	}
}

// A sealed stream is one that may not be written: its records wait, and the log says why.
func TestSealedStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	cfg := jetstream.StreamConfig{Name: natstest.UniqueName(t), Storage: jetstream.FileStorage}
	s.Stream(t, cfg)
	cfg.Subjects, cfg.Sealed = []string{cfg.Name}, true
	if _, err := s.JetStream(t).UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, config(s), sink.WriterConfig{})
	r.sendRows(cfg.Name, 1, 1)
	r.awaitLog("sealed")
}

// A response that does not say where a stream has stored the record is no acknowledgement.
func TestForeignResponse(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for _, response := range []string{
		`+ACK`, ``, `{"stream":"S"}`, `{"stream":"S", "seq":0}`, `{"stream":"S", "seq":12`, `{"stream":"", "seq":12}`, `{"stream":"S", "seq":99999999999999999999}`,
	} {
		t.Run(response, func(t *testing.T) {
			t.Parallel()
			subject := natstest.UniqueName(t)
			conn := s.Connect(t)
			if _, err := conn.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(response)) }); err != nil {
				t.Fatal(err)
			}
			if err := conn.Flush(); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, config(s), sink.WriterConfig{})
			r.sendRows(subject, 1, 1)
			r.Await("the reason", func() bool { return strings.Contains(r.Sink.Stat().LastError, "another program responds") })
			if r.Acked() > 0 {
				t.Error("the record counts as stored")
			}
		})
	}
}

// A server without JetStream, or whose account has none, is a configuration error of the first contact.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	none := natstest.Start(t, func(o *server.Options) { o.JetStream = false })
	noAccount := natstest.Start(t, func(o *server.Options) {
		account := server.NewAccount("plain")
		o.Accounts = []*server.Account{account}
		o.Users = []*server.User{{Username: "relay", Password: password, Account: account}}
	})
	for name, cfg := range map[string]Config{
		"server":  config(none),
		"account": withUser(config(noAccount), "relay"),
	} {
		_, err := cfg.Open(sinktest.Context(t), sinktest.NewJournal().Logger())
		if advised, ok := errors.AsType[sink.Advised](err); !errors.Is(err, sink.ErrAccess) || !ok || !strings.Contains(advised.Advice(), "JetStream") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
