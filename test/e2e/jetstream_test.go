package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestRelayOverJetStream: a relay with the rights of docs/jetstream.md delivers, and the stream has each event once.
func TestRelayOverJetStream(t *testing.T) {
	t.Parallel()
	const subject, bucket = "outbox.event.order", "outbox-cdc"
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "relay", Password: "s3cret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"outbox.>", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*",
					"$JS.API.STREAM.CREATE.KV_" + bucket, "$JS.API.STREAM.MSG.GET.KV_" + bucket, "$KV." + bucket + ".>",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	})
	s.Options = []nats.Option{nats.UserInfo("admin", "admin")}
	stream := s.Stream(t, jetstream.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.>"}, Storage: jetstream.FileStorage})
	password := filepath.Join(t.TempDir(), "password")
	rig.Must(t, os.WriteFile(password, []byte("s3cret\n"), 0o600))
	reader := &natsReader{js: s.JetStream(t), stream: stream, seen: make(map[string]int)}
	config := fmt.Sprintf("sink: {jetstream: {servers: [%q], user: relay, password_file: %q}}", s.Addrs[0], password)
	relaysOver(t, rig.Broker{Topic: subject, Config: config, Collect: reader.collect})
	for id, times := range reader.seen {
		if times > 1 {
			t.Errorf("event %s is in the stream %d times", id, times)
		}
	}
}

// A natsReader reads a stream from its beginning.
type natsReader struct {
	js     jetstream.JetStream
	stream string

	mu      sync.Mutex
	read    uint64 // sequence of the last message
	changed chan struct{}
	seen    map[string]int // by event id
}

func (r *natsReader) collect(t *testing.T, take func(rig.Received)) rig.CatchUp {
	t.Helper()
	r.changed = make(chan struct{}, 1)
	consumer, err := r.js.OrderedConsumer(t.Context(), r.stream, jetstream.OrderedConsumerConfig{})
	rig.Must(t, err)
	consuming, err := consumer.Consume(func(m jetstream.Msg) { r.take(t, m, take) })
	rig.Must(t, err)
	t.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
	})
	return func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return err
		}
		for last := stream.CachedInfo().State.LastSeq; ; {
			r.mu.Lock()
			done := r.read >= last
			r.mu.Unlock()
			if done {
				return nil
			}
			select {
			case <-r.changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func (r *natsReader) take(t *testing.T, m jetstream.Msg, take func(rig.Received)) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	meta, err := m.Metadata()
	if err != nil {
		t.Error(err)
		return
	}
	header := m.Headers()
	at, err := time.Parse(time.RFC3339, header.Get("outbox_timestamp"))
	if err != nil || header.Get(jetstream.MsgIDHeader) != header.Get("id") {
		t.Errorf("message %d has the headers %v", meta.Sequence.Stream, header)
	}
	r.seen[header.Get("id")]++
	take(rig.Received{
		Offset: int64(meta.Sequence.Stream), Key: []byte(header.Get("outbox_key")), Value: m.Data(), ID: header.Get("id"), Type: header.Get("eventType"), Timestamp: at,
	})
	r.read = meta.Sequence.Stream
	select {
	case r.changed <- struct{}{}:
	default:
	}
}
