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
		return inboxsarama.Run(ctx, group, []string{"outbox.event.order"}, processor, inboxsarama.Config{})
	}
	_ = consume
}

// A service that calls Consume itself. It also calls the processor's Run, or nothing is tried again.
func ExampleNewHandler() {
	consume := func(ctx context.Context, group sarama.ConsumerGroup, processor *inbox.Processor) {
		go func() {
			if err := processor.Run(ctx); err != nil {
				log.Print(err)
			}
		}()
		handler := inboxsarama.NewHandler(processor, inboxsarama.Config{})
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{"outbox.event.order"}, handler); err != nil {
				log.Print(err)
			}
		}
	}
	_ = consume
}
