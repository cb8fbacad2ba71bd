package sqs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 30 * time.Second
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
// authorities of the environment. connected is called for each connection that it makes.
func (c Config) httpClient(base aws.HTTPClient, connected func()) *http.Client {
	built, ok := base.(*awshttp.BuildableClient)
	if !ok {
		built = awshttp.NewBuildableClient()
	}
	tr := built.GetTransport()
	tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, c.Batches
	tr.IdleConnTimeout, tr.TLSHandshakeTimeout = idleTimeout, handshakeTimeout
	tr.DialContext = announced(c.dial, connected)
	if c.TLS != nil {
		tr.DialTLSContext = announced(c.dialTLS, connected)
	}
	return &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// announced returns dial, which calls connected for each connection that it makes.
func announced(dial dialFunc, connected func()) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			connected()
		}
		return conn, err
	}
}

// fenceKey is the key of the context value that is the fence of a request, a func() error.
type fenceKey struct{}

// checkFence returns the error of the fence of the request for which a connection was made. Making it may have taken
// long, and the request is written next.
func checkFence(ctx context.Context) error {
	if fence, ok := ctx.Value(fenceKey{}).(func() error); ok {
		if err := fence(); err != nil {
			return &unsentError{err}
		}
	}
	return nil
}

func (c Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if err := checkFence(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c Config) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg, err := c.TLS()
	if err != nil {
		return nil, err
	}
	raw, err := c.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), raw.Close())
	}
	if err := checkFence(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
