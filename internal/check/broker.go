package check

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// checkSink returns the conditions of the sink: those of Kafka, or what the package of another broker finds.
func (ck *checker) checkSink(ctx context.Context) []Condition {
	if conditions, ok := ck.checkKafka(ctx); ok {
		return ck.defined(conditions)
	}
	inspector, ok := ck.Relay.Sink.(sink.Inspector)
	if !ok {
		return nil
	}
	select {
	case <-ck.sampled:
	case <-ctx.Done():
	}
	out := ck.ofAnyBroker()
	for _, f := range inspector.Inspect(ctx, ck.use()) {
		out = append(out, Condition{Group: Sink, Name: f.Condition, Object: f.Object, State: stateOf(f.State), Found: f.Found, Fix: f.Fix})
	}
	return out
}

// ofAnyBroker returns the conditions of every broker but Kafka, which has its own in their place.
func (ck *checker) ofAnyBroker() []Condition {
	if ck.short {
		return nil // the relay warns of them when it starts, or they do no harm
	}
	r := report{group: Sink}
	if ck.Relay.Positions.IsZero() {
		r.warn("position store", "", "there is none: the relay does not detect a slot that was advanced or re-created while it was stopped, and resends more after a crash of Postgres",
			"set position_topic, or position.file for a broker that cannot store it")
	} else {
		r.ok("position store", "", "in "+ck.Relay.Positions.String())
	}
	r.ok("older writer", "", "the broker does not reject what an older relay sends: if two relays overlap, only the relay's own fence limits that (docs/sinks.md#what-is-promised)")
	switch route := ck.Relay.Route; {
	case route.FixedTopic() != "":
		r.ok("destinations", "", "every row goes to "+route.FixedTopic())
	case route.TopicPrefix() != "":
		r.ok("destinations", "", "all begin with "+route.TopicPrefix())
	default:
		r.warn("destinations", "", "a row can select any destination that the user may write", "begin outbox.topic with a fixed prefix, and let the user write only there")
	}
	return r.conditions
}

// use returns what the relay uses the broker for.
func (ck *checker) use() sink.Use {
	use := sink.Use{
		Relay: ck.Relay.Name, Template: ck.Relay.Route.Topic, DeadLetters: ck.Relay.DeadLetterTopic, Parks: ck.Relay.ParkedKeys > 0,
		Positions: ck.Relay.Positions.Topic, Short: ck.short, Probe: ck.Probe, Limits: ck.limits,
	}
	for _, name := range ck.sample.names() {
		s := ck.sample.topics[name]
		use.Destinations = append(use.Destinations, sink.Destination{Name: name, Largest: s.largest, Keyless: s.keyless})
	}
	return use
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
