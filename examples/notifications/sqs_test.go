package main

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest/queuetest"
)

func TestWithSQS(t *testing.T) {
	server := awstest.ElasticMQ(t)
	t.Setenv("AWS_ENDPOINT_URL_SQS", server)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	queues := queuetest.New(server)
	queue := queues.Create(t, "notifications.fifo", 1<<18)
	// A stop may cut a response off, with messages that SQS then holds back.
	_, err := queues.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &queue, Attributes: map[string]string{"VisibilityTimeout": "5"}})
	if err != nil {
		t.Fatal(err)
	}
	withBroker(t, config{brokers: queue, topic: queue}, always, "sink.sqs.region=eu-central-1", "sink.sqs.sqs_endpoint="+server)
}

// An event has what the relay has put into the message.
func TestEventOfSQS(t *testing.T) {
	text := func(s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	e, err := eventOf("q", &types.Message{Body: aws.String("//4="), MessageAttributes: map[string]types.MessageAttributeValue{
		"outbox_body": text("base64"), "outbox_key": text("k"), "outbox_timestamp": text("2026-03-01T12:00:00.123Z"),
		"id": text("7"), "raw": {DataType: aws.String("Binary"), BinaryValue: []byte{0xff}},
		"outbox_headers": text(`[{"name":"a b","value":"x"},{"name":"null","value":null},{"name":"bytes","value":null,"base64":"/w=="}]`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(e.Headers, func(a, b inbox.Header) int { return cmp.Compare(a.Name, b.Name) })
	want := inbox.Event{Topic: "q", Key: []byte("k"), Payload: []byte{0xff, 0xfe}, Time: at, Headers: []inbox.Header{
		{Name: "a b", Value: []byte("x")}, {Name: "bytes", Value: []byte{0xff}}, {Name: "id", Value: []byte("7")}, {Name: "null"}, {Name: "raw", Value: []byte{0xff}},
	}}
	if diff := gocmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for encoding, want := range map[string][]byte{"null": nil, "empty": {}} {
		e, err := eventOf("q", &types.Message{Body: aws.String("x"), MessageAttributes: map[string]types.MessageAttributeValue{"outbox_body": text(encoding)}})
		if err != nil || !gocmp.Equal(e.Payload, want) {
			t.Errorf("%s: %q, %v", encoding, e.Payload, err)
		}
	}
	empty, err := eventOf("q", &types.Message{Body: aws.String("x"), MessageAttributes: map[string]types.MessageAttributeValue{"outbox_headers": text(`[{"name":"outbox_key","value":""}]`)}})
	if err != nil || empty.Key == nil || len(empty.Key) > 0 {
		t.Errorf("an empty key: %v, %v", empty.Key, err)
	}
}
