package check

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// An inspected is a broker that has found something.
type inspected struct {
	sink.Broker
	use   *sink.Use
	found []sink.Finding
}

func (b inspected) Conditions() []sink.Condition {
	return []sink.Condition{{Name: "connection", Short: true}, {Name: "stream", Object: "stream", Short: true}, {Name: "size", Object: "stream"}}
}

func (b inspected) Inspect(_ context.Context, use sink.Use) []sink.Finding {
	*b.use = use
	return b.found
}

// What a broker has found is shown in the order of its conditions, those of each object together. The condition that holds for every
// broker comes after that.
func TestInspector(t *testing.T) {
	var use sink.Use
	broker := inspected{use: &use, found: []sink.Finding{
		{Condition: "stream", Object: "b", State: sink.Failed, Found: "is\n missing", Fix: "create\nit"},
		{Condition: "size", Object: "a", State: sink.Met, Found: "fits"},
		{Condition: "stream", Object: "a", State: sink.Met, Found: "exists"},
		{Condition: "connection", State: sink.Met, Found: "is there"},
	}}
	ck := checker{sampled: make(chan struct{}), limits: sink.Limits{Request: time.Second, Whole: time.Minute}, Config: Config{Probe: true, Relay: relay.Config{
		Name: "orders", Sink: broker, DeadLetterTopic: "dead", ParkedKeys: 1, Route: encode.Config{Names: kafka.Names{}, Topic: "events.${route}"},
	}}}
	ck.sample = make(sample)
	ck.sample.add(&sink.Record{Topic: "events.b", Value: []byte("four")})
	ck.sample.add(&sink.Record{Topic: "events.b", Key: []byte("k"), Value: []byte("1"), Headers: []sink.Header{{Key: "h", Value: []byte("v")}}})
	ck.sample.add(&sink.Record{Topic: "events.a", Key: []byte("k")})
	synctest.Test(t, func(t *testing.T) {
		ck := ck
		ck.sampled = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var checked atomic.Bool
		go func() {
			ck.checkSink(ctx)
			checked.Store(true)
		}()
		synctest.Wait()
		if checked.Load() {
			t.Error("the sample was used before it was complete")
		}
		close(ck.sampled)
	})
	close(ck.sampled)

	got := ck.checkSink(t.Context())
	want := []Condition{
		{Sink, "connection", "", Met, "is there", ""},
		{Sink, "stream", "a", Met, "exists", ""},
		{Sink, "size", "a", Met, "fits", ""},
		{Sink, "stream", "b", Failed, "is missing", "create it"},
		{Sink, "known destinations", "", Met, "2 destinations in the configuration or the last rows", ""},
		{Sink, "destinations", "", Met, "all begin with events.", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	wantUse := sink.Use{
		Relay: "orders", DeadLetters: "dead", Parks: true, Probe: true, Limits: ck.limits,
		Destinations: []sink.Destination{
			{Name: "events.a", Largest: &sink.Record{Topic: "events.a", Key: []byte("k")}},
			{Name: "events.b", Largest: &sink.Record{Topic: "events.b", Value: []byte("four")}, Keyless: 1},
		},
	}
	if diff := cmp.Diff(wantUse, use); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
	ck.short = true
	if got := ck.checkSink(t.Context()); !slices.Equal(got, slices.Concat(want[:2], want[3:4])) || !use.Short {
		t.Errorf("beside a relay: %+v", got)
	}
}
