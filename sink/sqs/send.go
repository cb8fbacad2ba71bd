package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// requestTimeout limits a request. Its batch is then sent again.
const requestTimeout = 10 * time.Second

var (
	errNoResponse = fmt.Errorf("no response within %s", requestTimeout)

	// errNotNamed: the response has neither a success nor a failure for an entry. It may be stored.
	errNotNamed = errors.New("the response does not have the outcome of the message")
)

// send sends a batch and returns the outcome of each request, for Done.
//
// If the service rejects the whole batch because of a message, send finds it by sending each on its own. The requests
// are of different lanes, so the order does not depend on that of a batch.
func (c *client) send(ctx context.Context, to Destination, batch []*pending) []error {
	outcomes, err := c.try(ctx, to, batch)
	if err == nil {
		return outcomes
	}
	if e, ok := errors.AsType[*codeError](err); ok && e.class() == invalid && len(batch) > 1 {
		for i := range batch {
			outcomes[i] = c.send(ctx, to, batch[i:i+1])[0]
		}
		return outcomes
	}
	for i, p := range batch {
		outcomes[i] = c.outcome(err, &p.message)
	}
	return outcomes
}

// try sends a batch. It returns the outcome of each request, or the error of the whole batch.
func (c *client) try(ctx context.Context, to Destination, batch []*pending) ([]error, error) {
	outcomes := make([]error, len(batch))
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoResponse)
	defer cancel()
	url := ""
	if to.service == queues {
		var err error
		if url, err = c.queueURL(ctx, to); err != nil {
			return outcomes, responseError(ctx, err)
		}
	}
	fence := batch[0].request.Fence
	if err := fence(); err != nil {
		return outcomes, err
	}
	ctx = network.WithFence(ctx, fence)
	var result map[string]*codeError
	var err error
	if to.service == topics {
		result, err = c.publish(ctx, to, batch)
	} else {
		result, err = c.sendMessages(ctx, to, url, batch)
	}
	if err != nil {
		err = responseError(ctx, err)
		if _, unsent := errors.AsType[*network.DialError](err); errors.Is(err, lane.ErrConnection) && !unsent {
			c.ConnectionLost()
		}
		if e, ok := errors.AsType[*codeError](err); ok && e.class() == missing {
			c.forgetURL(to)
		}
		return outcomes, err
	}
	for i, p := range batch {
		failure, named := result[strconv.Itoa(i)]
		switch {
		case !named:
			outcomes[i] = errNotNamed
		case failure != nil:
			outcomes[i] = c.outcome(failure, &p.message)
		}
	}
	return outcomes, nil
}

// outcome returns the error for Done from that of a batch or an entry.
func (c *client) outcome(err error, m *message) error {
	if e, ok := errors.AsType[*codeError](err); ok && e.class() == invalid {
		rejected := &sink.RecordError{Size: m.size, Code: e.code, Reason: e, TooLarge: e.tooLarge}
		if e.tooLarge {
			rejected.Limit = c.cfg.MaxBytes
		}
		return rejected
	}
	return c.wrap(err)
}

// wrap adds the error class to what responseError has returned. Without valid credentials, no destination can be
// written.
func (c *client) wrap(err error) error {
	if e, ok := errors.AsType[*credentialsError](err); ok {
		if e.final {
			return fmt.Errorf("%w: %w: %w", lane.ErrConnection, errAccess, err)
		}
		return fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	e, ok := errors.AsType[*codeError](err)
	if !ok {
		return err
	}
	switch e.class() {
	case missing:
		return fmt.Errorf("%w: %w", errMissing, err)
	case denied:
		return fmt.Errorf("%w: %w", errAccess, err)
	case unauthenticated:
		return fmt.Errorf("%w: %w: %w", lane.ErrConnection, errAccess, err)
	case retriable, throttled, invalid:
	}
	return err
}

// sendMessages sends a batch to a queue. The result has each entry that the response names, by id: nil if it is stored.
func (c *client) sendMessages(ctx context.Context, to Destination, url string, batch []*pending) (map[string]*codeError, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: make([]sqstypes.SendMessageBatchRequestEntry, len(batch))}
	for i, p := range batch {
		m := &p.message
		group, duplication := m.fifo(to)
		in.Entries[i] = sqstypes.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &m.body, MessageGroupId: group, MessageDeduplicationId: duplication,
			MessageAttributes: attributesOf(m, func(kind, text *string, binary []byte) sqstypes.MessageAttributeValue {
				return sqstypes.MessageAttributeValue{DataType: kind, StringValue: text, BinaryValue: binary}
			}),
		}
	}
	resp, err := c.queues.SendMessageBatch(ctx, in, c.queuesIn(to))
	if err != nil {
		return nil, err
	}
	result := make(map[string]*codeError, len(batch))
	for _, e := range resp.Successful {
		result[aws.ToString(e.Id)] = nil
	}
	for _, e := range resp.Failed {
		result[aws.ToString(e.Id)] = entryError(e.Code, e.Message)
	}
	return result, nil
}

// publish sends a batch to a topic, like sendMessages.
func (c *client) publish(ctx context.Context, to Destination, batch []*pending) (map[string]*codeError, error) {
	in := &sns.PublishBatchInput{TopicArn: &to.arn, PublishBatchRequestEntries: make([]snstypes.PublishBatchRequestEntry, len(batch))}
	for i, p := range batch {
		m := &p.message
		group, duplication := m.fifo(to)
		in.PublishBatchRequestEntries[i] = snstypes.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &m.body, MessageGroupId: group, MessageDeduplicationId: duplication,
			MessageAttributes: attributesOf(m, func(kind, text *string, binary []byte) snstypes.MessageAttributeValue {
				return snstypes.MessageAttributeValue{DataType: kind, StringValue: text, BinaryValue: binary}
			}),
		}
	}
	resp, err := c.topics.PublishBatch(ctx, in, c.topicsIn(to))
	if err != nil {
		return nil, err
	}
	result := make(map[string]*codeError, len(batch))
	for _, e := range resp.Successful {
		result[aws.ToString(e.Id)] = nil
	}
	for _, e := range resp.Failed {
		result[aws.ToString(e.Id)] = entryError(e.Code, e.Message)
	}
	return result, nil
}

// attributesOf returns the attributes of m as values of a service, whose types differ only in their package.
func attributesOf[V any](m *message, value func(kind, text *string, binary []byte) V) map[string]V {
	values := make(map[string]V, len(m.attributes))
	for i := range m.attributes {
		a := &m.attributes[i]
		if a.binary != nil {
			values[a.name] = value(aws.String("Binary"), nil, a.binary)
		} else {
			values[a.name] = value(aws.String("String"), &a.text, nil)
		}
	}
	return values
}

// fifo returns the group and the deduplication id of m, nil unless its destination is FIFO.
func (m *message) fifo(to Destination) (group, duplication *string) {
	if !to.fifo {
		return nil, nil
	}
	return &m.group, &m.duplication
}

// entryError returns the error of an entry of a batch.
func entryError(code, text *string) *codeError {
	return &codeError{code: aws.ToString(code), tooLarge: isTooLarge(aws.ToString(code), aws.ToString(text))}
}

// isTooLarge reports whether an error is about the size of a message. The code alone does not always say so.
func isTooLarge(code, text string) bool {
	if strings.Contains(code, "TooLong") {
		return true
	}
	text = strings.ToLower(text)
	for _, words := range []string{"must be shorter than", "too long", "too large", "longer than the message limit"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
