package sqs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

const (
	dialTimeout = 5 * time.Second // and for the TLS handshake
	idleTimeout = 30 * time.Second
)

var errNoRegion = errors.New("no region: set sink.sqs.region, AWS_REGION, or the region of the profile")

// load returns the configuration of the library: that of the environment and the shared files, with the fields of c.
func (c Config) load(ctx context.Context) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{config.WithAppID("outbox-cdc"), config.WithHTTPClient(awshttp.NewBuildableClient())}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	if c.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(c.Credentials))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return loaded, err
	}
	if loaded.Region == "" {
		loaded.Region = c.contact().region
	}
	if loaded.Region == "" {
		return loaded, errNoRegion
	}
	loaded.Credentials = provider{loaded.Credentials}
	return loaded, nil
}

// httpClient returns the client for requests to SQS and SNS. base is the library's client, with the certificate
// authorities of the environment.
func (c Config) httpClient(base aws.HTTPClient, connections *network.Dialer) *http.Client {
	built, ok := base.(*awshttp.BuildableClient)
	if !ok {
		built = awshttp.NewBuildableClient()
	}
	tr := built.GetTransport()
	tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, c.Batches
	tr.IdleConnTimeout, tr.TLSHandshakeTimeout = idleTimeout, dialTimeout
	tr.DialContext = connections.DialPlain
	if c.TLS != nil {
		tr.DialTLSContext = connections.DialTLS
	}
	return &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
