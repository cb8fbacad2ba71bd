package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

const (
	receiveMax  = 10               // messages that a request returns, at most
	receiveWait = 20 * time.Second // for a message; both are the maximum of SQS
	retryDelay  = time.Second
)

// consumeSQS handles the messages of a FIFO queue. Region and credentials come from the standard chain of AWS.
func consumeSQS(ctx context.Context, processor *inbox.Processor, cfg config) error {
	shared, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return fmt.Errorf("configure SQS: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var retries sync.WaitGroup
	var retriesErr error
	retries.Go(func() {
		retriesErr = processor.Run(ctx) // retries the events that have failed
		stop(retriesErr)
	})
	err = receive(ctx, processor, sqs.NewFromConfig(shared), cfg.brokers)
	stop(err)
	retries.Wait()
	return errors.Join(err, retriesErr)
}

// receive handles messages until ctx is done. It deletes a message after the transaction in which its event was handled
// or stored in the inbox. SQS delivers a message again that is not deleted, and holds back the later messages of its
// group until then.
func receive(ctx context.Context, processor *inbox.Processor, client *sqs.Client, queue string) error {
	for ctx.Err() == nil {
		received, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queue, MaxNumberOfMessages: receiveMax, WaitTimeSeconds: int32(receiveWait / time.Second), MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			if ctx.Err() == nil {
				processor.Logger().WarnContext(ctx, "queue not available, retrying", slog.Any("err", err))
			}
			select {
			case <-time.After(retryDelay):
			case <-ctx.Done():
			}
			continue
		}
		for i := range received.Messages { // one after the other: the messages of a group are in order
			if err := handle(ctx, processor, client, queue, &received.Messages[i]); err != nil {
				giveBack(context.WithoutCancel(ctx), client, queue, received.Messages[i:])
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the service stops
				}
				return err
			}
		}
	}
	return nil
}

// handle handles a message, and then deletes it.
func handle(ctx context.Context, processor *inbox.Processor, client *sqs.Client, queue string, m *types.Message) error {
	e, err := eventOf(queue, m)
	if err != nil {
		return err
	}
	if err := processor.Handle(ctx, e); err != nil {
		return err
	}
	_, err = client.DeleteMessage(context.WithoutCancel(ctx), &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle})
	if err != nil { // SQS delivers it again, and the processor ignores the duplicate
		processor.Logger().WarnContext(ctx, "message not deleted", slog.Any("err", err))
	}
	return nil
}

// giveBack makes SQS deliver messages again at once. Otherwise it waits for the visibility timeout.
func giveBack(ctx context.Context, client *sqs.Client, queue string, messages []types.Message) {
	for i := range messages {
		_, err := client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &queue, ReceiptHandle: messages[i].ReceiptHandle})
		if err != nil {
			return
		}
	}
}

// eventOf returns the event of a message. docs/sqs.md describes the message.
func eventOf(queue string, m *types.Message) (inbox.Event, error) {
	e := inbox.Event{Topic: queue, Payload: []byte(aws.ToString(m.Body)), Time: time.Now()}
	for name, attribute := range m.MessageAttributes {
		value := attribute.BinaryValue
		if attribute.StringValue != nil {
			value = []byte(*attribute.StringValue)
		}
		var err error
		switch name {
		case "outbox_key":
			e.Key = value
		case "outbox_timestamp":
			e.Time, err = time.Parse(time.RFC3339, string(value))
		case "outbox_body":
			e.Payload, err = payloadOf(e.Payload, string(value))
		case "outbox_headers":
			err = addHeaders(&e, value)
		default:
			e.Headers = append(e.Headers, inbox.Header{Name: name, Value: value})
		}
		if err != nil {
			return e, fmt.Errorf("message %s, attribute %s: %w", aws.ToString(m.MessageId), name, err)
		}
	}
	return e, nil
}

// payloadOf returns the payload of a body that is not the payload itself.
func payloadOf(body []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "null":
		return nil, nil
	case "empty":
		return []byte{}, nil
	case "base64":
		return base64.StdEncoding.DecodeString(string(body))
	}
	return nil, fmt.Errorf("the body has the unknown encoding %q", encoding)
}

// addHeaders adds the headers that are not attributes of their own.
func addHeaders(e *inbox.Event, list []byte) error {
	var headers []struct {
		Name   string
		Value  *string
		Base64 []byte
	}
	if err := json.Unmarshal(list, &headers); err != nil {
		return err
	}
	for _, h := range headers {
		value := h.Base64
		if h.Value != nil {
			value = []byte(*h.Value)
		}
		if h.Name == "outbox_key" {
			e.Key = value
			continue
		}
		e.Headers = append(e.Headers, inbox.Header{Name: h.Name, Value: value})
	}
	return nil
}
