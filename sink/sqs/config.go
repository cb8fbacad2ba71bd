package sqs

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// DefaultMaxBytes is the default of Config.MaxBytes.
	DefaultMaxBytes = 256 << 10

	// LargestMaxBytes is the largest Config.MaxBytes.
	LargestMaxBytes = 1 << 20

	// DefaultWindowBytes is the default of Config.WindowBytes.
	DefaultWindowBytes = 8 << 20

	// DefaultBatches is the default of Config.Batches.
	DefaultBatches = 16

	maxBatches = 1000
)

// Config configures the access to Amazon SQS and Amazon SNS. It implements [sink.Broker]. Every field may be zero.
type Config struct {
	// Region is the region of queues that are given by their names, and of URLs that do not have one. Empty means that
	// of Destination, or else that of the environment or of Profile.
	Region string

	// Profile is the profile of the shared configuration and credentials files. Empty means that of the environment.
	Profile string

	// SQSEndpoint and SNSEndpoint are URLs to use in place of the endpoints of the services, in every region. Empty means
	// those of the environment or of Profile, if they have any.
	SQSEndpoint, SNSEndpoint string

	// Destination says what Open contacts: the service and the region of this destination, which need not exist and
	// whose name may be a template. Empty means SQS in Region.
	Destination string

	// Credentials are the credentials. They are asked for each request, so they should be cached. Nil means the
	// standard chain: the environment, the shared files, web identity, the role of the container or of the instance.
	Credentials aws.CredentialsProvider

	// TLS returns the TLS configuration of a connection. It is called for each connection, from any goroutine, so that
	// certificates may be rotated. An empty ServerName means the host of the endpoint. Nil: the certificate
	// authorities of the system, or those of AWS_CA_BUNDLE.
	TLS func() (*tls.Config, error)

	// Dial makes network connections, below TLS, like net.Dialer.DialContext. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// MaxBytes is the maximum size of a message, and of the messages of a batch together. Larger records are rejected
	// without sending them. The service has a limit for each queue and topic, MaximumMessageSize, of up to 1 MiB. Zero
	// means 256 KiB.
	MaxBytes int

	// Batches is the maximum number of batches in flight for each destination. Zero means 16.
	Batches int

	// WindowBytes limits the memory of unacknowledged records, and WindowRecords their number. Both also limit the
	// number of duplicates after a crash. Zero means the default of package lane.
	WindowBytes, WindowRecords int
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	switch {
	case c.MaxBytes > LargestMaxBytes:
		return fmt.Errorf("sink: MaxBytes is %d, the maximum is %d", c.MaxBytes, LargestMaxBytes)
	case c.Batches > maxBatches:
		return fmt.Errorf("sink: Batches is %d, the maximum is %d", c.Batches, maxBatches)
	}
	for _, e := range []struct{ field, url string }{{"SQSEndpoint", c.SQSEndpoint}, {"SNSEndpoint", c.SNSEndpoint}} {
		if e.url != "" && !strings.HasPrefix(e.url, "https://") && !strings.HasPrefix(e.url, "http://") {
			return fmt.Errorf("sink: %s is not an http or https URL", e.field)
		}
	}
	return sink.CheckNotNegative(c)
}

// String returns the services with their region, for messages.
func (c Config) String() string {
	first := c.contact()
	name := "Amazon " + strings.ToUpper(first.service.String())
	if endpoint := c.endpoint(first.service); endpoint != "" {
		return name + " at " + hostOf(endpoint)
	}
	if region := cmp.Or(first.region, c.Region); region != "" {
		return name + " in " + region
	}
	return name
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.Batches = cmp.Or(c.Batches, DefaultBatches)
	c.WindowBytes = cmp.Or(c.WindowBytes, DefaultWindowBytes)
	return c
}

func (c Config) endpoint(s service) string {
	if s == topics {
		return c.SNSEndpoint
	}
	return c.SQSEndpoint
}

// contact returns the service and the region that Open contacts. The rest of Destination may be a template.
func (c Config) contact() Destination {
	if strings.HasPrefix(c.Destination, "arn:") {
		if part := strings.SplitN(c.Destination, ":", 6); len(part) == 6 {
			d := Destination{region: part[3]}
			if part[2] == topics.String() {
				d.service = topics
			}
			return d
		}
	}
	if _, rest, ok := strings.Cut(c.Destination, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if m := hostPattern.FindStringSubmatch(host); m != nil {
			return Destination{region: m[1] + m[2]}
		}
	}
	return Destination{}
}
