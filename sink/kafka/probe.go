package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// probe tests in a temporary topic whether the broker rejects an older writer.
func (i *inspection) probe(ctx context.Context) {
	if i.use.Positions == "" {
		i.Doubt("older writer", "", "not tested: without position_topic the broker cannot tell which relay is older, and only the relay's own fence limits how many records are duplicated out of order",
			"set position_topic")
		return
	}
	topic := i.use.Positions + ".probe-" + strings.ToLower(rand.Text()[:8])
	var found error
	answered := i.ask(ctx, "older writer", "", func(ctx context.Context) error {
		err := probeOrder(ctx, i.cfg, topic)
		if errors.Is(err, sink.ErrOlderAccepted) || errors.Is(err, sink.ErrNewerRejected) || isRefusal(err) {
			found, err = err, nil
		}
		return err
	})
	switch {
	case !answered:
	case found == nil:
		i.Met("older writer", "", "the broker rejects records of an older writer after a newer one has written")
	case errors.Is(found, sink.ErrOlderAccepted):
		i.Doubt("older writer", "", found.Error()+": if two relays overlap, only the relay's own fence limits how many records are duplicated out of order", "ask the vendor whether the broker can fence producer epochs per partition, as Apache Kafka does (INVALID_PRODUCER_EPOCH)")
	case errors.Is(found, sink.ErrNewerRejected):
		i.Failed("older writer", "", found.Error()+": a standby that takes over cannot write", `set position_topic: "", so that each relay has its own producer id; then only the relay's own fence limits how many records are duplicated`)
	default: // nothing was created
		prefix := i.use.Positions + ".probe-"
		i.Failed("probe topic", "", "the user may not create and use "+topic+": "+found.Error(),
			i.cfg.grantCommand("--operation Create --operation Write --operation Delete --resource-pattern-type prefixed --topic "+prefix)+" && "+
				i.cfg.grantCommand("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id "+prefix))
		return
	}
	i.deleteProbeTopic(ctx, topic)
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
func (i *inspection) deleteProbeTopic(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.use.Limits.Request)
	defer cancel()
	if err := i.inspector.deleteTopic(ctx, topic); err != nil {
		i.Doubt("probe topic", "", topic+" could not be deleted: "+err.Error(), i.cfg.adminCommand("kafka-topics.sh", "--delete --topic "+topic))
		return
	}
	i.Met("probe topic", "", topic+" was deleted")
}
