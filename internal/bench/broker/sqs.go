package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

// queues are FIFO queues of Amazon SQS. Each measurement has queues of its own, because a queue drops rows that it has had
// within five minutes.
type queues struct{ cfg sqs.Config }

func sqsError(doing string, err error) error {
	return failed(doing, err, "Check sink.sqs, and that its user may create, list, write, read and delete queues named "+measure.TopicPrefix+"*.")
}

func (b queues) connect(ctx context.Context) (*awssqs.Client, error) {
	var encryption error
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, max(b.cfg.Batches, sqsReceivers)
		if b.cfg.TLS != nil {
			t.TLSClientConfig, encryption = b.cfg.TLS()
		}
	})
	if encryption != nil {
		return nil, encryption
	}
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithHTTPClient(transport)}
	if b.cfg.Region != "" {
		options = append(options, awsconfig.WithRegion(b.cfg.Region))
	}
	if b.cfg.Profile != "" {
		options = append(options, awsconfig.WithSharedConfigProfile(b.cfg.Profile))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, sqsError("load the configuration of AWS", err)
	}
	return awssqs.NewFromConfig(loaded, func(o *awssqs.Options) {
		if b.cfg.SQSEndpoint != "" {
			o.BaseEndpoint = &b.cfg.SQSEndpoint
		}
	}), nil
}

// Library implements Broker.
func (b queues) Library() string {
	return fmt.Sprintf("aws-sdk-go-v2, %d concurrent SendMessageBatch", b.cfg.Batches)
}

// List implements measure.Broker.
func (b queues) List(ctx context.Context) ([]string, error) {
	client, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, measure.ContactTimeout)
	defer cancel()
	prefix := measure.TopicPrefix
	found, err := client.ListQueues(limited, &awssqs.ListQueuesInput{QueueNamePrefix: &prefix})
	if err != nil {
		return nil, sqsError("list the queues", err)
	}
	return found.QueueUrls, nil
}

// DropCommand implements measure.Broker.
func (queues) DropCommand(prefix string) string {
	return fmt.Sprintf("aws sqs list-queues --queue-name-prefix %s --query 'QueueUrls[]' --output text | xargs -n 1 aws sqs delete-queue --queue-url", name(prefix))
}

// Open implements measure.Broker.
func (b queues) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	client, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sqsQueues{client: client, layout: l}, nil
}

type sqsQueues struct {
	client *awssqs.Client
	layout measure.Layout
	made   int
}

// Delete implements measure.Destinations. Every queue is that of a Stream.
func (*sqsQueues) Delete(context.Context) error { return nil }

// Close implements measure.Destinations.
func (*sqsQueues) Close() {}

// Observe implements measure.Destinations.
func (q *sqsQueues) Observe(ctx context.Context) (measure.Stream, error) {
	q.made++
	template := fmt.Sprintf("%s_%d_%s.fifo", name(q.layout.Prefix), q.made, route)
	s := &sqsStream{inbox: newInbox(), client: q.client, template: template, names: names(template, q.layout.Topics)}
	for _, n := range s.names {
		created, err := q.client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &n, Attributes: map[string]string{"FifoQueue": "true"}})
		if err != nil {
			return nil, errors.Join(sqsError("create a queue", err), s.Close(ctx))
		}
		s.urls = append(s.urls, *created.QueueUrl)
	}
	receiving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	for i, url := range s.urls {
		for range sqsReceivers {
			s.receiving.Go(func() { s.receive(receiving, s.names[i], url) })
		}
	}
	return s, nil
}

const (
	sqsBatch     = 10
	sqsReceivers = 4 // of each queue
	sqsWait      = 1 // s
)

type sqsStream struct {
	*inbox
	client      *awssqs.Client
	template    string
	names, urls []string
	stop        context.CancelFunc
	receiving   sync.WaitGroup
}

// receive receives and deletes messages until ctx is done. While it has messages of a group, no other receiver gets any of
// the group, so the order of a group is that in which receive passes them on.
func (s *sqsStream) receive(ctx context.Context, topic, url string) {
	for ctx.Err() == nil {
		got, err := s.client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: sqsBatch, WaitTimeSeconds: sqsWait, MessageAttributeNames: []string{sqsKey},
		})
		if err == nil && len(got.Messages) > 0 {
			err = s.pass(ctx, topic, url, got.Messages)
		}
		if err != nil && ctx.Err() == nil {
			s.fail(sqsError("receive messages", err))
			return
		}
	}
}

// sqsKey is the message attribute with the key.
const sqsKey = "outbox_key"

func (s *sqsStream) pass(ctx context.Context, topic, url string, messages []types.Message) error {
	now := time.Now()
	var entries []types.DeleteMessageBatchRequestEntry
	for i := range messages {
		m := &messages[i]
		key := aws.ToString(m.MessageAttributes[sqsKey].StringValue)
		select {
		case s.records <- received{at: now, topic: topic, offset: now.UnixNano(), key: []byte(key), value: []byte(aws.ToString(m.Body))}:
		case <-ctx.Done():
			return nil
		}
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
	}
	_, err := s.client.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	return err
}

// Names implements measure.Stream.
func (s *sqsStream) Names() []string { return s.names }

// Settings implements measure.Stream.
func (s *sqsStream) Settings() map[string]any { return map[string]any{"outbox.topic": s.template} }

// End implements measure.Stream.
func (s *sqsStream) End(ctx context.Context) (func() bool, error) {
	return func() bool {
		for _, url := range s.urls {
			got, err := s.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
				types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
			}})
			if err != nil {
				s.fail(sqsError("count the messages", err))
				return false
			}
			for _, n := range got.Attributes {
				if n != "0" {
					return false
				}
			}
		}
		return len(s.records) == 0
	}, nil
}

// Close implements measure.Stream.
func (s *sqsStream) Close(ctx context.Context) error {
	if s.stop != nil {
		s.stop()
	}
	s.receiving.Wait()
	var errs []error
	for _, url := range s.urls {
		_, err := s.client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: &url})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Producer implements Broker. It has as many batches in flight as the relay.
func (b queues) Producer(ctx context.Context) (measure.Producer, error) {
	client, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	urls := &sqsURLs{client: client}
	return newWorkers(b.cfg.Batches, sqsBatch, func(messages []measure.Message) error { return urls.send(ctx, messages) }), nil
}

// sqsURLs are the URLs of queues, by name.
type sqsURLs struct {
	client *awssqs.Client
	urls   sync.Map
}

func (u *sqsURLs) of(ctx context.Context, queue string) (*string, error) {
	if url, ok := u.urls.Load(queue); ok {
		text, _ := url.(*string)
		return text, nil
	}
	got, err := u.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return nil, err
	}
	u.urls.Store(queue, got.QueueUrl)
	return got.QueueUrl, nil
}

// send sends messages, of which those of a queue are one batch.
func (u *sqsURLs) send(ctx context.Context, messages []measure.Message) error {
	batches := make(map[string][]types.SendMessageBatchRequestEntry)
	for i := range messages {
		m := &messages[i]
		text := func(s string) types.MessageAttributeValue {
			return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
		}
		batches[m.Topic] = append(batches[m.Topic], types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(m.Payload)), MessageGroupId: &m.Key, MessageDeduplicationId: &m.ID,
			MessageAttributes: map[string]types.MessageAttributeValue{
				"id": text(m.ID), "eventType": text(m.Type), sqsKey: text(m.Key), sink.TimestampHeader: text(time.Now().UTC().Format(milliseconds)),
			},
		})
	}
	for queue, entries := range batches {
		url, err := u.of(ctx, queue)
		if err != nil {
			return err
		}
		sent, err := u.client.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err != nil {
			return err
		}
		if len(sent.Failed) > 0 {
			return fmt.Errorf("SendMessageBatch: %d messages failed, the first with %s", len(sent.Failed), aws.ToString(sent.Failed[0].Code))
		}
	}
	return nil
}
