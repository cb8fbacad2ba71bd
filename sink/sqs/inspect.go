package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An inspection collects what Inspect finds.
type inspection struct {
	sink.Findings

	client *client
}

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "credentials", Met: "There are credentials.", Short: true},
		{Name: "connection", Object: "host", Met: "The service responds, and accepts the credentials.", Short: true},
		{Name: "destination", Object: "destination", Met: "The queue or topic exists, and the user may read its attributes.", Short: true},
		{Name: "message size", Object: "destination", Met: "The queue or topic accepts a message as large as the largest of the last rows, and as `sink.sqs.max_message_bytes`.", Short: true},
		{Name: "order", Object: "destination", Met: "The queue or topic is FIFO, and the last rows have a key."},
		{Name: "throughput", Object: "destination", Met: "The limit of a FIFO queue is not that of the whole queue."},
	}
}

// Inspect implements [sink.Inspector]. It reads the attributes of the queues and topics.
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	i := new(inspection)
	var err error
	if i.client, err = c.newClient(ctx, slog.New(slog.DiscardHandler)); err != nil {
		i.Failed("credentials", "", err.Error(), accessAdvice)
		return i.Findings
	}
	defer func() { _ = i.client.Close() }()
	host := i.client.host(i.client.cfg.contact())
	switch err := i.client.contact(ctx); {
	case errors.Is(err, sink.ErrAccess):
		i.Failed("connection", host, err.Error(), accessAdvice)
		return i.Findings
	case err != nil:
		i.Failed("connection", host, err.Error(), reachAdvice)
		return i.Findings
	}
	i.Met("connection", host, "responds, and accepts the credentials")
	for _, d := range use.Destinations {
		i.destination(ctx, d, true)
	}
	if use.DeadLetters != "" {
		i.destination(ctx, sink.Destination{Name: use.DeadLetters}, false)
	}
	return i.Findings
}

// destination tests a queue or topic. ordered says that its records are to be in order.
func (i *inspection) destination(ctx context.Context, d sink.Destination, ordered bool) {
	to, err := ParseDestination(d.Name)
	if err != nil {
		i.Failed("destination", d.Name, err.Error(), "correct outbox.topic")
		return
	}
	attributes, err := i.client.attributesOf(ctx, d.Name)
	switch {
	case errors.Is(err, sink.ErrMissing):
		i.Failed("destination", d.Name, err.Error(), missingAdvice)
		return
	case errors.Is(err, sink.ErrAccess):
		i.Failed("destination", d.Name, err.Error(), accessAdvice)
		return
	case err != nil:
		i.Failed("destination", d.Name, err.Error(), reachAdvice)
		return
	}
	i.Met("destination", d.Name, "exists"+retention(attributes))
	i.size(d, attributes)
	switch {
	case !ordered:
	case !to.fifo:
		i.Doubt("order", d.Name, "is not FIFO: consumers may receive the records of a key in any order, and several times", "create a queue or topic whose name ends in .fifo")
	case d.Keyless > 0:
		i.Doubt("order", d.Name, fmt.Sprintf("%d records have no key, and so no order", d.Keyless), "name the key column in outbox.columns.key")
	default:
		i.Met("order", d.Name, "FIFO: the records of a key are in order")
	}
	if to.service == queues && to.fifo && attributes["FifoThroughputLimit"] == "perQueue" {
		i.Doubt("throughput", d.Name, "high throughput is off: the limit is 300 batches a second for the whole queue", "set DeduplicationScope: messageGroup and FifoThroughputLimit: perMessageGroupId")
	}
}

// size compares the limit of a queue or topic with the records and with MaxBytes.
func (i *inspection) size(d sink.Destination, attributes map[string]string) {
	limit := limitIn(attributes)
	if limit == 0 || limit > i.client.cfg.MaxBytes {
		limit = i.client.cfg.MaxBytes
	}
	switch {
	case d.Largest.Size() > limit:
		i.Failed("message size", d.Name, fmt.Sprintf("accepts %d bytes, and a record has %d", limit, d.Largest.Size()), "set MaximumMessageSize and sink.sqs.max_message_bytes to a larger size, up to 1048576")
	case limit < i.client.cfg.MaxBytes:
		i.Doubt("message size", d.Name, fmt.Sprintf("accepts %d bytes, fewer than sink.sqs.max_message_bytes: larger records are sent and rejected", limit), "set MaximumMessageSize and sink.sqs.max_message_bytes to the same size")
	default:
		i.Met("message size", d.Name, fmt.Sprintf("accepts %d bytes", limit))
	}
}

// retention describes how long a queue keeps messages.
func retention(attributes map[string]string) string {
	seconds, err := strconv.Atoi(attributes["MessageRetentionPeriod"])
	if err != nil {
		return ""
	}
	return "; keeps messages for " + (time.Duration(seconds) * time.Second).String()
}
