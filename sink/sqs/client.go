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
)

// A client is the [sink.Sink] of SQS and SNS. It has a client of the library for each service and region.
type client struct {
	cfg   Config
	aws   aws.Config
	http  *http.Client
	log   *slog.Logger
	stats *lane.Stats
	token string // identifies the client in deduplication ids

	mu     sync.Mutex
	queues map[string]*sqs.Client // by region
	topics map[string]*sns.Client // by region
	urls   map[string]string      // of queues that were looked up, by region, account and name
}

// maxKnown limits each map of a client: rows may choose any number of queues and regions.
const maxKnown = 1000

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	cl, err := c.newClient(ctx, log)
	if err != nil {
		return nil, err
	}
	first := c.contact()
	if err := lane.Retry(ctx, cl.stats, log, func(ctx context.Context) error { return cl.contact(ctx, first) }); err != nil {
		cl.http.CloseIdleConnections()
		if errors.Is(err, sink.ErrUnreachable) {
			return nil, sink.Advise(err, reachAdvice)
		}
		return nil, err
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
	cl := &client{
		cfg: c, aws: loaded, log: log, token: rand.Text()[:12],
		queues: make(map[string]*sqs.Client), topics: make(map[string]*sns.Client), urls: make(map[string]string),
	}
	cl.stats = lane.NewStats(lane.Options{Broker: cl.host(c.contact()), WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes})
	cl.http = c.httpClient(loaded.HTTPClient, cl.stats.ConnectionMade)
	return cl, nil
}

// contact asks the service for a queue or topic that does not exist. Any answer but one about the credentials shows that
// the service can be reached with them. It needs no privilege.
func (c *client) contact(ctx context.Context, first Destination) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoResponse)
	defer cancel()
	var err error
	if first.service == topics {
		arn := fmt.Sprintf("arn:aws:sns:%s:000000000000:%s", c.regionOf(first), contactName)
		_, err = c.topicsOf(first).GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
	} else {
		_, err = c.queuesOf(first).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(contactName)})
	}
	err = c.wrap(responseError(ctx, err))
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
	return lane.NewWriter(cfg, newTransport(c), c.stats, c.log)
}

// Stat implements [sink.Sink].
func (c *client) Stat() sink.Stat { return c.stats.Stat() }

// Close implements [sink.Sink].
func (c *client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// CheckDestinations implements [sink.Sink]. It logs a queue whose own limit is below MaxBytes.
func (c *client) CheckDestinations(ctx context.Context, destinations ...string) error {
	var absent []string
	for _, name := range destinations {
		to, err := ParseDestination(name)
		if err != nil {
			return fmt.Errorf("%w: %s %w", errMissing, name, err)
		}
		err = lane.Retry(ctx, c.stats, c.log, func(ctx context.Context) error { return c.check(ctx, to) })
		switch {
		case errors.Is(err, sink.ErrMissing):
			absent = append(absent, name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w: %s", errMissing, strings.Join(absent, ", "))
	}
	return nil
}

// check returns nil if a queue or topic exists, and its attributes may be read.
func (c *client) check(ctx context.Context, to Destination) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoResponse)
	defer cancel()
	attributes, err := c.attributesOf(ctx, to)
	if err = c.wrap(responseError(ctx, err)); err != nil {
		return err
	}
	if n := limitIn(attributes); n > 0 && n < c.cfg.MaxBytes {
		c.log.WarnContext(ctx, "queue or topic accepts only smaller messages than sink.sqs.max_message_bytes",
			slog.String("destination", to.name), slog.Int("maximum_message_size", n), slog.Int("max_message_bytes", c.cfg.MaxBytes))
	}
	return nil
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
func (c *client) attributesOf(ctx context.Context, to Destination) (map[string]string, error) {
	if to.service == topics {
		resp, err := c.topicsOf(to).GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &to.arn})
		if err != nil {
			return nil, err
		}
		return resp.Attributes, nil
	}
	url, err := c.queueURL(ctx, to)
	if err != nil {
		return nil, err
	}
	resp, err := c.queuesOf(to).GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	return resp.Attributes, nil
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
	resp, err := c.queuesOf(to).GetQueueUrl(ctx, in)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane.MakeRoom(c.urls, id, maxKnown)
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

// queuesOf returns the client of SQS for a destination.
func (c *client) queuesOf(to Destination) *sqs.Client {
	region := c.regionOf(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.queues[region]
	if of == nil {
		of = sqs.NewFromConfig(c.aws, func(o *sqs.Options) {
			o.Region, o.HTTPClient, o.Retryer = region, c.http, aws.NopRetryer{}
			if c.cfg.SQSEndpoint != "" {
				o.BaseEndpoint = &c.cfg.SQSEndpoint
			}
		})
		lane.MakeRoom(c.queues, region, maxKnown)
		c.queues[region] = of
	}
	return of
}

// topicsOf returns the client of SNS for a destination.
func (c *client) topicsOf(to Destination) *sns.Client {
	region := c.regionOf(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.topics[region]
	if of == nil {
		of = sns.NewFromConfig(c.aws, func(o *sns.Options) {
			o.Region, o.HTTPClient, o.Retryer = region, c.http, aws.NopRetryer{}
			if c.cfg.SNSEndpoint != "" {
				o.BaseEndpoint = &c.cfg.SNSEndpoint
			}
		})
		lane.MakeRoom(c.topics, region, maxKnown)
		c.topics[region] = of
	}
	return of
}

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
