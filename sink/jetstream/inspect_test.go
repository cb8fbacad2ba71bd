package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// Inspect says what is wrong with streams and buckets, and how to fix it.
func TestInspect(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := s.JetStream(t)
	file := jetstream.FileStorage
	for _, test := range []struct {
		name   string
		stream jetstream.StreamConfig
		want   string
		state  sink.State
	}{
		{"replicas", jetstream.StreamConfig{Storage: file}, "replicas: 1: a server writes", sink.Doubt},
		{"memory", jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, "storage: messages are in memory only", sink.Doubt},
		{"window", jetstream.StreamConfig{Storage: file, Duplicates: time.Second}, "duplicates window: 1s", sink.Doubt},
		{"window", jetstream.StreamConfig{Storage: file}, "duplicates window: 2m0s", sink.Met},
		{"no ack", jetstream.StreamConfig{NoAck: true}, "acknowledgements: the stream does not acknowledge", sink.Failed},
		{"interest", jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, "retention: interest", sink.Doubt},
		{"discard old", jetstream.StreamConfig{MaxMsgs: 100}, "retention: discard old", sink.Doubt},
		{"discard new", jetstream.StreamConfig{MaxMsgs: 100, Discard: jetstream.DiscardNew}, "retention: discard new", sink.Doubt},
		{"age", jetstream.StreamConfig{MaxAge: time.Hour}, "retention: messages are kept for 1h", sink.Met},
		{"size", jetstream.StreamConfig{MaxMsgSize: 100}, "message size: a record has 500 bytes", sink.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := s.Stream(t, test.stream)
			wantFinding(t, s, sink.Use{Destinations: []sink.Destination{{Name: name, Largest: &sink.Record{Value: make([]byte, 500)}}}}, test.want, test.state)
		})
	}
	wantFinding(t, s, sink.Use{Destinations: []sink.Destination{{Name: "nobody.has.this"}}}, "stream: no stream has the subject", sink.Failed)
	wantFinding(t, s, sink.Use{DeadLetters: "nor.this"}, "stream: no stream has the subject", sink.Failed)
	wantFinding(t, s, sink.Use{Positions: "later"}, "bucket: does not exist yet", sink.Met)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "expires", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, s, sink.Use{Positions: "expires"}, "bucket: values expire", sink.Failed)
	s.Shutdown()
	if f := sinktest.Inspect(short(t), t, config(s), sink.Use{}); len(f) != 1 || f[0].State != sink.Failed || f[0].Fix == "" {
		t.Errorf("a server that is down: %+v", f)
	}
}

// A start of the relay warns of what endangers messages, and not of what the operator has chosen.
func TestInspectAtStart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for name, test := range map[string]struct {
		stream jetstream.StreamConfig
		want   []string
	}{
		"one replica, a short window, discard new": {jetstream.StreamConfig{Storage: jetstream.FileStorage, Duplicates: time.Second, MaxMsgs: 100, Discard: jetstream.DiscardNew}, nil},
		"in memory, discard old":                   {jetstream.StreamConfig{Storage: jetstream.MemoryStorage, MaxMsgs: 100}, []string{"storage", "retention"}},
	} {
		use := sink.Use{Destinations: []sink.Destination{{Name: s.Stream(t, test.stream)}}}
		if got := sinktest.AtStart(sinktest.Context(t), t, config(s), use); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func wantFinding(t *testing.T, s *natstest.Server, use sink.Use, want string, state sink.State) {
	t.Helper()
	var all []string
	for _, f := range sinktest.Inspect(sinktest.Context(t), t, config(s), use) {
		text := f.Condition + ": " + f.Found
		if strings.HasPrefix(text, want) {
			if f.State != state || (f.Fix == "") != (state == sink.Met) {
				t.Errorf("%+v", f)
			}
			return
		}
		all = append(all, text)
	}
	t.Errorf("no finding %q in\n%s", want, fmt.Sprint(strings.Join(all, "\n")))
}

// Without a server, the finding names the address that was tried.
func TestInspectNamesTheServerThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	found := sinktest.Inspect(ctx, t, Config{Servers: []string{"127.0.0.1:1"}}, sink.Use{})
	if len(found) != 1 || found[0].State != sink.Failed || !strings.Contains(found[0].Found, "cannot be reached at 127.0.0.1:1:") {
		t.Errorf("findings %+v", found)
	}
}
