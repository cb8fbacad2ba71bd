package check

import (
	"context"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// checkSink returns the conditions of the sink: what the package of the broker finds, and those that hold for every broker.
func (ck *checker) checkSink(ctx context.Context) []Condition {
	<-ck.sampled // soon after the end of ctx at the latest
	return append(ck.inspect(ctx), ck.destinations()...)
}

// inspect returns what the package of the broker finds.
func (ck *checker) inspect(ctx context.Context) []Condition {
	inspector, ok := ck.Relay.Sink.(sink.Inspector)
	if !ok {
		return nil
	}
	var out []Condition
	for _, f := range inspector.Inspect(ctx, ck.use()) {
		out = append(out, Condition{Group: Sink, Name: f.Condition, Object: f.Object, State: stateOf(f.State), Found: flatten(f.Found), Fix: flatten(f.Fix)})
	}
	return ck.defined(out)
}

// destinations returns whether the destinations are known, and whether a row can select any destination that the user may write.
func (ck *checker) destinations() []Condition {
	if ck.short {
		return nil // it is no reason to change anything while the relay runs
	}
	const name = "destinations"
	r := report{group: Sink}
	route := ck.Relay.Route
	if known := len(ck.sample); known > 0 {
		r.ok("known destinations", "", terminal.Counted(known, "destination")+" in the configuration or the last rows")
	} else {
		r.warn("known destinations", "", fmt.Sprintf("%s depends on rows, and none was read: whether the destinations exist, and the user may write them, is not tested", route.Topic), ck.sampleFix)
	}
	reason := fmt.Sprintf("outbox.topic %s begins with a column", route.Topic)
	switch prefix := route.TopicPrefix(); {
	case route.FixedTopic() != "":
		r.ok(name, "", "every row goes to "+prefix)
		return r.conditions
	case prefix != "":
		r.ok(name, "", "all begin with "+prefix)
		return r.conditions
	case len(route.TopicRules) > 0:
		reason = "outbox.topic_rules may replace the whole name"
	}
	fix := "begin the names with a fixed prefix, as " + encode.DefaultTopic + " does, and let the user write only there"
	if broker, ok := ck.Relay.Sink.(sink.Separator); ok {
		fix += ": " + broker.Separate(ck.use())
	}
	r.warn(name, "", reason+": a row can select any destination that the user may write", fix)
	return r.conditions
}

// use returns what the relay uses the broker for.
func (ck *checker) use() sink.Use {
	return sink.Use{
		Relay: ck.Relay.Name, DeadLetters: ck.Relay.DeadLetterTopic, Parks: ck.Relay.ParkedKeys > 0,
		Positions: ck.Relay.Positions.Topic, Destinations: ck.sample.destinations(), Short: ck.short, Probe: ck.Probe, Limits: ck.limits,
	}
}

func stateOf(s sink.State) State {
	switch s {
	case sink.Met:
		return Met
	case sink.Doubt:
		return Doubt
	case sink.Failed:
	}
	return Failed
}
