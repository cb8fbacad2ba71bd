package main

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

func TestWithJetStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.>"}})
	withBroker(t, config{brokers: server.URL()}, always, "sink.jetstream.servers="+server.Addrs[0])
}
