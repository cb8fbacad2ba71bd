package jetstream

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A token of a key has the bytes that NATS allows, and its name can be found again. Other tokens have no name.
func TestKeyToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"orders-1_A": "orders-1_A", "a.b": "a=2Eb", "=41": "=3D41", "é %/": "=C3=A9=20=25=2F", "\xff*>": "=FF=2A=3E", "": "",
	} {
		if got := keyToken(name); got != token {
			t.Errorf("keyToken(%q) = %q, want %q", name, got, token)
		}
		if got, ok := nameOf(token); !ok || got != name {
			t.Errorf("nameOf(%q) = %q, %t, want %q", token, got, ok, name)
		}
	}
	for _, token := range []string{"=", "=4", "=zz", "=41", "=2e", "a%2Eb"} {
		if name, ok := nameOf(token); ok {
			t.Errorf("nameOf(%q) = %q", token, name)
		}
	}
}

// A relay whose bucket was deleted waits, and says how to go on.
func TestBucketIsDeleted(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	ctx, name := sinktest.Context(t), natstest.UniqueName(t)
	opened, err := config(s).Open(ctx, sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	store, err := sink.OpenPositions(ctx, opened, name, "relay")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := store.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.JetStream(t).DeleteStream(ctx, bucketPrefix+name); err != nil {
		t.Fatal(err)
	}
	giveUp, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- owner.Write(giveUp, sink.PositionKey, []byte("x")) }()
	wait.For(t, "a rejected Write", func() bool { return opened.Stat().StallAdvice != "" || len(written) > 0 })
	if st := opened.Stat(); !strings.HasPrefix(st.StallReason, "bucket "+name+" does not exist") || !strings.Contains(st.StallAdvice, "restart the relay") {
		t.Errorf("stall %q, %q", st.StallReason, st.StallAdvice)
	}
	stop()
	if err := wait.Receive(t, "the Write", written); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
}
