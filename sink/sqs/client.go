package sqs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// A client is the [sink.Sink] of SQS and SNS, in all regions.
type client struct {
	*lane.Base

	cfg     Config
	aws     aws.Config
	network network.Dialer
	http    *http.Client
	queues  *sqs.Client
	topics  *sns.Client
	log     *slog.Logger
	token   string // identifies the client in deduplication ids

	mu   sync.Mutex
	urls map[string]string // of queues that were looked up, by region, account and name; at most maxURLs
}

// maxURLs limits client.urls: rows may choose any number of queues.
const maxURLs = 1000

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	cl, err := c.newClient(ctx, log)
	if err != nil {
		return nil, err
	}
	if err := cl.Retry(ctx, cl.contact); err != nil {
		return nil, errors.Join(err, cl.Close())
	}
	return cl, nil
}

// newClient returns a client that has contacted nobody, except for credentials.
func (c Config) newClient(ctx context.Context, log *slog.Logger) (*client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	loaded, err := c.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAccess, err)
	}
	cl := &client{cfg: c, aws: loaded, log: log, token: rand.Text()[:12], urls: make(map[string]string)}
	cl.Base = lane.NewBase(lane.Options{
		Broker: cl.host(c.contact()), ReachAdvice: reachAdvice, Illegal: Names{}.Illegal, WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes,
	}, log)
	cl.network = network.Dialer{Dial: c.Dial, TLS: c.TLS, Timeout: dialTimeout, Connected: cl.ConnectionMade}
	cl.http = c.httpClient(loaded.HTTPClient, &cl.network)
	cl.queues = sqs.NewFromConfig(loaded, func(o *sqs.Options) {
		o.HTTPClient, o.Retryer = cl.http, aws.NopRetryer{}
		if c.SQSEndpoint != "" {
			o.BaseEndpoint = &c.SQSEndpoint
		}
	})
	cl.topics = sns.NewFromConfig(loaded, func(o *sns.Options) {
		o.HTTPClient, o.Retryer = cl.http, aws.NopRetryer{}
		if c.SNSEndpoint != "" {
			o.BaseEndpoint = &c.SNSEndpoint
		}
	})
	return cl, nil
}

// queuesIn makes a request to SQS in the region of a destination.
func (c *client) queuesIn(to Destination) func(*sqs.Options) {
	return func(o *sqs.Options) { o.Region = c.regionOf(to) }
}

// topicsIn makes a request to SNS in the region of a destination.
func (c *client) topicsIn(to Destination) func(*sns.Options) {
	return func(o *sns.Options) { o.Region = c.regionOf(to) }
}

// ask calls f with the time of a request, and returns its error with the error class.
func (c *client) ask(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoResponse)
	defer cancel()
	return c.wrap(responseError(ctx, f(ctx)))
}

// contact asks the service that Open contacts for a queue or topic that does not exist. Any answer but one about the credentials
// shows that the service can be reached with them. It needs no privilege.
func (c *client) contact(ctx context.Context) error {
	to := c.cfg.contact()
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		if to.service == topics {
			arn := fmt.Sprintf("arn:aws:sns:%s:000000000000:%s", c.regionOf(to), contactName)
			_, err = c.topics.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn}, c.topicsIn(to))
		} else {
			_, err = c.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(contactName)}, c.queuesIn(to))
		}
		return err
	})
	if e, ok := errors.AsType[*codeError](err); ok {
		switch e.class() {
		case missing, denied, invalid:
			return nil
		case retriable, throttled, unauthenticated:
		}
	}
	return err
}

// contactName is the name of the queue or topic that does not exist.
const contactName = "outbox-cdc-first-contact"

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return c.NewWriterOver(newTransport(c), cfg)
}

// Close implements [sink.Sink].
func (c *client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// CheckDestinations implements [sink.Sink]. It logs a queue whose own limit is below MaxBytes.
func (c *client) CheckDestinations(ctx context.Context, destinations ...string) error {
	return c.CheckEach(ctx, destinations, func(ctx context.Context, name string) error {
		attributes, err := c.attributesOf(ctx, name)
		if n := limitIn(attributes); n > 0 && n < c.cfg.MaxBytes {
			c.log.WarnContext(ctx, "queue or topic accepts only smaller messages than sink.sqs.max_message_bytes",
				slog.String("destination", name), slog.Int("maximum_message_size", n), slog.Int("max_message_bytes", c.cfg.MaxBytes))
		}
		return err
	})
}

// limitIn returns the attribute MaximumMessageSize of a queue or topic; 0 if it has none.
func limitIn(attributes map[string]string) int {
	n, err := strconv.Atoi(attributes["MaximumMessageSize"])
	if err != nil {
		return 0
	}
	return n
}

// attributesOf returns the attributes of a queue or topic.
func (c *client) attributesOf(ctx context.Context, destination string) (attributes map[string]string, err error) {
	to, err := ParseDestination(destination)
	if err != nil {
		return nil, err
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		if to.service == topics {
			resp, err := c.topics.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &to.arn}, c.topicsIn(to))
			if err == nil {
				attributes = resp.Attributes
			}
			return err
		}
		url, err := c.queueURL(ctx, to)
		if err != nil {
			return err
		}
		in := &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll}}
		resp, err := c.queues.GetQueueAttributes(ctx, in, c.queuesIn(to))
		if err == nil {
			attributes = resp.Attributes
		}
		return err
	})
	return attributes, err
}

// queueURL returns the URL of a queue. It asks the service once for each queue that is given by its name or ARN.
func (c *client) queueURL(ctx context.Context, to Destination) (string, error) {
	if to.url != "" {
		return to.url, nil
	}
	id := to.id()
	c.mu.Lock()
	known := c.urls[id]
	c.mu.Unlock()
	if known != "" {
		return known, nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: &to.name}
	if to.account != "" {
		in.QueueOwnerAWSAccountId = &to.account
	}
	resp, err := c.queues.GetQueueUrl(ctx, in, c.queuesIn(to))
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane.MakeRoom(c.urls, id, maxURLs)
	c.urls[id] = aws.ToString(resp.QueueUrl)
	return c.urls[id], nil
}

// id identifies a queue whose URL is looked up.
func (d Destination) id() string { return strings.Join([]string{d.region, d.account, d.name}, ":") }

// forgetURL makes the next queueURL ask the service again.
func (c *client) forgetURL(to Destination) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.urls, to.id())
}

func (c *client) regionOf(to Destination) string { return cmp.Or(to.region, c.aws.Region) }

// host returns host:port of the service of a destination, for messages.
func (c *client) host(to Destination) string {
	if endpoint := cmp.Or(c.cfg.endpoint(to.service), aws.ToString(c.aws.BaseEndpoint)); endpoint != "" {
		return hostOf(endpoint)
	}
	suffix := ".amazonaws.com:443"
	region := c.regionOf(to)
	if slices.Contains([]string{"cn-north-1", "cn-northwest-1"}, region) {
		suffix = ".amazonaws.com.cn:443"
	}
	return to.service.String() + "." + region + suffix
}
