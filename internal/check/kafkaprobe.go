package check

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// probe tests in a temporary topic whether the broker rejects an older writer.
func (s *kafkaChecker) probe(ctx context.Context) {
	if s.Relay.Positions.Topic == "" {
		s.warn("older writer", "", "not tested: without position_topic the broker cannot tell which relay is older, and only the relay's own fence limits how many records are duplicated out of order",
			"set position_topic")
		return
	}
	topic := s.Relay.Positions.Topic + ".probe-" + strings.ToLower(rand.Text()[:8])
	var found error
	answered := s.ask(ctx, &s.report, "older writer", "", func(ctx context.Context) error {
		err := probeOrder(ctx, s.cfg, topic)
		if errors.Is(err, sink.ErrOlderAccepted) || errors.Is(err, sink.ErrNewerRejected) || isRefusal(err) {
			found, err = err, nil
		}
		return err
	})
	switch {
	case !answered:
	case found == nil:
		s.ok("older writer", "", "the broker rejects records of an older writer after a newer one has written")
	case errors.Is(found, sink.ErrOlderAccepted):
		s.warn("older writer", "", oneLine(found)+": if two relays overlap, only the relay's own fence limits how many records are duplicated out of order", "ask the vendor whether the broker can fence producer epochs per partition, as Apache Kafka does (INVALID_PRODUCER_EPOCH)")
	case errors.Is(found, sink.ErrNewerRejected):
		s.fail("older writer", "", oneLine(found)+": a standby that takes over cannot write", `set position_topic: "", so that each relay has its own producer id; then only the relay's own fence limits how many records are duplicated`)
	default: // nothing was created
		prefix := s.Relay.Positions.Topic + ".probe-"
		s.fail("probe topic", "", "the user may not create and use "+topic+": "+oneLine(found),
			s.cfg.GrantCommand("--operation Create --operation Write --operation Delete --resource-pattern-type prefixed --topic "+prefix)+" && "+
				s.cfg.GrantCommand("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id "+prefix))
		return
	}
	s.deleteProbeTopic(ctx, topic)
}

// probeOrder creates topic and writes to it as an older and a newer writer.
func probeOrder(ctx context.Context, broker sink.Broker, topic string) error {
	reached, err := broker.Open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer reached.Close()
	store, err := sink.OpenPositions(ctx, reached, topic, "probe")
	if err != nil {
		return err
	}
	return store.CheckOrder(ctx)
}

// deleteProbeTopic deletes topic, even if ctx has ended. It succeeds if topic does not exist.
func (s *kafkaChecker) deleteProbeTopic(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.Request)
	defer cancel()
	if err := s.inspector.DeleteTopic(ctx, topic); err != nil {
		s.warn("probe topic", "", topic+" could not be deleted: "+oneLine(err), s.cfg.AdminCommand("kafka-topics.sh", "--delete --topic "+topic))
		return
	}
	s.ok("probe topic", "", topic+" was deleted")
}
