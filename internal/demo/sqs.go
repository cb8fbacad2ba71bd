package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

const (
	sqsRegion = "us-east-1"
	sqsBatch  = 10 // the maximum of the service
	sqsWait   = 1  // seconds that a request waits for messages
)

func sqsKind() kind {
	return kind{
		name: "sqs", title: "Amazon SQS", connects: true,
		from:  "an emulator, which --brokers names",
		needs: "the demo cannot start SQS. Start an emulator, for example ElasticMQ with docker run -p 9324:9324 softwaremill/elasticmq-native, and add --brokers http://localhost:9324",
		flags: "-c outbox-cdc.yaml", page: "docs/sqs.md", open: openSQS,
	}
}

func openSQS(ctx context.Context, r *rig) (*broker, error) {
	endpoint := r.opts.Brokers[0]
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	login := credentials.NewStaticCredentialsProvider(clientID, clientID, "") // an emulator accepts any
	client := awssqs.New(awssqs.Options{Region: sqsRegion, BaseEndpoint: &endpoint, Credentials: login})
	b := &broker{
		addrs: r.opts.Brokers, details: given(r.opts), names: sqs.Names{}, topic: r.names.object + "_" + route + ".fifo",
		sink: sqs.Config{Region: sqsRegion, SQSEndpoint: endpoint, Credentials: login},
	}
	queues := make(map[string]string) // URL by name
	for _, name := range b.destinations() {
		limited, cancel := context.WithTimeout(ctx, contactTimeout)
		created, err := client.CreateQueue(limited, &awssqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"FifoQueue": "true"}})
		cancel()
		if err != nil {
			return nil, unreachable(b, fmt.Errorf("create queue %s: %w", name, err))
		}
		queues[name] = *created.QueueUrl
		r.later(func(ctx context.Context) error {
			if _, err := client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: created.QueueUrl}); err != nil {
				return fmt.Errorf("delete queue %s: %w", name, err)
			}
			return nil
		})
	}
	b.consume = func(ctx context.Context, take func(message)) error {
		g, ctx := errgroup.WithContext(ctx)
		for name, url := range queues {
			g.Go(func() error { return receiveMessages(ctx, client, name, url, take) })
		}
		return g.Wait()
	}
	return b, nil
}

// receiveMessages takes and deletes the messages of a queue. The service hands out the messages of a group in their order, and
// the next ones only when those before are deleted.
func receiveMessages(ctx context.Context, client *awssqs.Client, name, url string, take func(message)) error {
	for n := int64(0); ; {
		got, err := client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: sqsBatch, WaitTimeSeconds: sqsWait, MessageAttributeNames: []string{"All"},
		})
		switch {
		case err != nil:
			return fmt.Errorf("receive from %s: %w", name, err)
		case len(got.Messages) == 0:
			continue
		}
		var done []types.DeleteMessageBatchRequestEntry
		for i, m := range got.Messages {
			n++
			attribute := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
			take(message{destination: name, key: attribute("outbox_key"), id: attribute(idHeader), kind: attribute(typeHeader), offset: n})
			done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := client.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: done}); err != nil {
			return fmt.Errorf("delete from %s: %w", name, err)
		}
	}
}
