package inboxsarama_test

import (
	"context"
	"log"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxsarama"
)

func ExampleRun() {
	consume := func(ctx context.Context, processor *inbox.Processor) error {
		cfg := sarama.NewConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		group, err := sarama.NewConsumerGroup([]string{"kafka:9092"}, "notifications", cfg)
		if err != nil {
			return err
		}
		defer group.Close()
		return inboxsarama.Run(ctx, processor, group, []string{"outbox.event.order"})
	}
	_ = consume
}

// A service that calls Consume itself must also call Run of the processor: otherwise failed events are
// never retried.
func ExampleNewHandler() {
	consume := func(ctx context.Context, group sarama.ConsumerGroup, processor *inbox.Processor) {
		go func() {
			if err := processor.Run(ctx); err != nil {
				log.Print(err)
			}
		}()
		handler := inboxsarama.NewHandler(processor)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{"outbox.event.order"}, handler); err != nil {
				log.Print(err)
			}
		}
	}
	_ = consume
}
