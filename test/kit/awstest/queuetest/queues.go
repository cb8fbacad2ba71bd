// Package queuetest reads the queues of a server of SQS with the client of AWS. It is apart from package awstest, because the
// tests of other packages need a server, but not the client.
package queuetest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
)

const cleanupTimeout = time.Minute

// hiddenSeconds is for how long a received message is hidden unless it is deleted before.
const hiddenSeconds = "30"

// Queues are the queues of a server of SQS.
type Queues struct {
	*sqs.Client

	mu       sync.Mutex
	messages map[string][]awstest.Message // received so far, by queue URL
}

// New returns the queues of the server at a URL. Its account accepts any credentials.
func New(url string) *Queues {
	return &Queues{
		Client: sqs.New(sqs.Options{
			Region: "us-east-1", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""),
		}),
		messages: make(map[string][]awstest.Message),
	}
}

// Create creates a queue with a limit for the size of a message, deletes it when the test ends, and returns its URL.
func (q *Queues) Create(tb testing.TB, name string, maxBytes int) string {
	tb.Helper()
	attributes := map[string]string{"MaximumMessageSize": strconv.Itoa(maxBytes), "VisibilityTimeout": hiddenSeconds}
	if strings.HasSuffix(name, ".fifo") {
		attributes["FifoQueue"] = "true"
	}
	created, err := q.CreateQueue(tb.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		tb.Fatal(err)
	}
	url := *created.QueueUrl
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupTimeout)
		defer cancel()
		if _, err := q.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			tb.Errorf("delete %s: %v", url, err)
		}
	})
	return url
}

// Messages receives and deletes the messages of a queue until it is empty. It returns them and those that were received
// before.
func (q *Queues) Messages(tb testing.TB, url string) []awstest.Message {
	tb.Helper()
	for {
		if all, more := q.Receive(tb, url); !more && q.isEmpty(tb, url) {
			return all
		} else if !more {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// isEmpty reports whether a queue has no messages. If the response with some was lost, they return after hiddenSeconds.
func (q *Queues) isEmpty(tb testing.TB, url string) bool {
	tb.Helper()
	const visible, hidden = types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible
	got, err := q.GetQueueAttributes(tb.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{visible, hidden}})
	if err != nil && tb.Context().Err() == nil {
		tb.Errorf("attributes of %s: %v", url, err)
	}
	return err != nil || got.Attributes[string(visible)] == "0" && got.Attributes[string(hidden)] == "0"
}

// Receive receives and deletes up to ten messages of a queue. It returns all that were received so far. more is false if
// the queue was empty.
func (q *Queues) Receive(tb testing.TB, url string) (all []awstest.Message, more bool) {
	tb.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	got, err := q.ReceiveMessage(tb.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"MessageGroupId", "MessageDeduplicationId"},
	})
	switch {
	case err != nil && tb.Context().Err() != nil: // the test is over
		return q.messages[url], false
	case err != nil:
		tb.Errorf("receive messages: %v", err)
		return q.messages[url], false
	case len(got.Messages) == 0:
		return q.messages[url], false
	}
	var entries []types.DeleteMessageBatchRequestEntry
	for i := range got.Messages {
		m := &got.Messages[i]
		q.messages[url] = append(q.messages[url], messageOf(m))
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
	}
	deleted, err := q.DeleteMessageBatch(tb.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	if tb.Context().Err() == nil && (err != nil || len(deleted.Failed) > 0) {
		tb.Errorf("delete received messages: %v", err)
	}
	return q.messages[url], true
}

func messageOf(m *types.Message) awstest.Message {
	of := awstest.Message{
		Body: aws.ToString(m.Body), Group: m.Attributes["MessageGroupId"], Duplication: m.Attributes["MessageDeduplicationId"],
		Attributes: make(map[string]awstest.Attribute),
	}
	for name, a := range m.MessageAttributes {
		of.Attributes[name] = awstest.Attribute{DataType: aws.ToString(a.DataType), StringValue: aws.ToString(a.StringValue), BinaryValue: a.BinaryValue}
	}
	return of
}
