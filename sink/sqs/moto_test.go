package sqs

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest/queuetest"
)

// TestTopicsOfMoto: records reach a queue through a topic, unaltered and in order, over requests that break.
func TestTopicsOfMoto(t *testing.T) {
	t.Parallel()
	endpoint := awstest.Moto(t)
	front := awstest.NewFront(t, endpoint)
	all := queuetest.New(endpoint)
	cfg := testConfig(front.URL)
	cfg.Region = "us-east-1"
	client := open(t, cfg)
	for name, suffix := range map[string]string{"fifo": ".fifo", "standard": ""} {
		t.Run(name, func(t *testing.T) {
			unique := fmt.Sprintf("moto-%d%s", time.Now().UnixNano(), suffix)
			queue := all.Create(t, unique, DefaultMaxBytes)
			topic := subscribe(t, client, all, unique, queue)
			if err := client.CheckDestinations(sinktest.Context(t), topic); err != nil {
				t.Fatal(err)
			}
			s := sinktest.StartSession(t, client, sinktest.NewJournal(), sink.WriterConfig{})
			var sent []sink.Record
			send := func(n int) {
				for range n {
					i := len(sent)
					rec := sink.Record{
						Seq: uint64(i + 1), Topic: topic, Key: fmt.Append(nil, "key ", i%4), Value: fmt.Append(nil, `{"n": `, i, `, "ä": "\n"}`),
						Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, i)}, {Key: "z", Value: []byte("ä")}}, Timestamp: time.UnixMilli(int64(i)),
					}
					sent = append(sent, rec)
					if err := s.Writer.Send(sinktest.Context(t), &rec); err != nil {
						t.Fatal(err)
					}
				}
				s.AwaitAcked(len(sent))
			}
			send(40)
			met, heal := front.Begin(awstest.Strike{Lose: true})
			go func() {
				<-met
				heal()
			}()
			send(20)
			s.Drain(len(sent))
			wantMessages(t, storedRecords(t, topic, all.Messages(t, queue)), sent, suffix != "")
		})
	}
}

// subscribe creates a topic with a queue, and returns its ARN.
func subscribe(t *testing.T, c *client, all *queuetest.Queues, name, queue string) string {
	t.Helper()
	attributes := map[string]string{}
	if name[len(name)-1] == 'o' {
		attributes["FifoTopic"] = "true"
	}
	topic, err := c.topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	got, err := all.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []sqstypes.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.topics.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(got.Attributes["QueueArn"]),
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *topic.TopicArn
}

// wantMessages fails the test unless got has every record that was sent. If fifo is true, got has each once, and those of a
// key in order.
func wantMessages(t *testing.T, got []sink.StoredRecord, sent []sink.Record, fifo bool) {
	t.Helper()
	times := make(map[string]int)
	last := make(map[string]int)
	for _, g := range got {
		var n int
		if _, err := fmt.Sscan(string(g.Headers[0].Value), &n); err != nil {
			t.Fatal(err)
		}
		want := sent[n]
		if string(g.Key) != string(want.Key) || string(g.Value) != string(want.Value) || len(g.Headers) != 2 ||
			string(g.Headers[1].Value) != string(want.Headers[1].Value) || !g.Timestamp.Equal(want.Timestamp) {
			t.Errorf("record %d: %+v", n, g)
		}
		if times[string(want.Value)]++; fifo && n < last[string(want.Key)] {
			t.Errorf("record %d is behind %d of the same key", n, last[string(want.Key)])
		}
		last[string(want.Key)] = n
	}
	for i, rec := range sent {
		if n := times[string(rec.Value)]; n == 0 || fifo && n > 1 {
			t.Errorf("record %d is stored %d times", i, n)
		}
	}
}
