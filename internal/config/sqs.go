package config

import (
	"fmt"
	"net/url"
	"regexp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

const (
	sqsKind = "sqs"
	atSQS   = "sink.sqs."
)

func sqsBroker() broker {
	certificates := replacedTLS(atSQS + "tls.")
	certificates.fixed = true // without any, AWS_CA_BUNDLE counts
	return broker{
		kind: sqsKind, title: "Amazon SQS and SNS", system: "aws_sqs",
		names: func(*Config) encode.Names { return sqs.Names{} },
		check: func(c *Config) error {
			_, err := c.SQS()
			return join(err, c.checkSQSTopic())
		},
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.SQS()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn: (*Config).sqsWarnings,
		addresses: func(c *Config) []string {
			cfg, err := c.SQS()
			if err != nil {
				return nil
			}
			return []string{cfg.String()}
		},
		reloads: []replaced{certificates},
	}
}

// templateVariable is a variable of outbox.topic.
var templateVariable = regexp.MustCompile(`\$\{[^}]*\}`)

// checkSQSTopic reports a template of which no row makes a destination, such as the default with its periods.
func (c *Config) checkSQSTopic() error {
	if len(c.Outbox.TopicRules) > 0 {
		return nil // they may make anything of it
	}
	if illegal := (sqs.Names{}).Illegal(templateVariable.ReplaceAllString(c.Outbox.Topic, "x")); illegal != "" {
		return c.invalid("outbox.topic", "%q %s; for example outbox_event_${route}.fifo", c.Outbox.Topic, illegal)
	}
	return nil
}

// SQS returns the settings of sink.sqs, or an [*Error].
func (c *Config) SQS() (sqs.Config, error) {
	s := c.Sink.SQS
	cfg := sqs.Config{
		Region: s.Region, Profile: s.Profile, SQSEndpoint: s.SQSEndpoint, SNSEndpoint: s.SNSEndpoint, Destination: c.Outbox.Topic,
		MaxBytes: s.MaxMessageBytes, Batches: s.BatchesInFlight, WindowBytes: s.Window.Bytes, WindowRecords: s.Window.Records,
	}
	if s.TLS != (Certificates{}) { // otherwise AWS_CA_BUNDLE counts
		var err error
		if cfg.TLS, err = c.certified(atSQS + "tls."); err != nil {
			return sqs.Config{}, err
		}
	}
	if err := cfg.Validate(); err != nil {
		return sqs.Config{}, c.invalid("sink.sqs", "%v", err)
	}
	return cfg, nil
}

func (c *Config) sqsWarnings() []string {
	var out []string
	s := c.Sink.SQS
	for _, endpoint := range []string{s.SQSEndpoint, s.SNSEndpoint} {
		if u, err := url.Parse(endpoint); err == nil && u.Scheme == "http" && !isThisMachine(u.Hostname()) {
			out = append(out, fmt.Sprintf("events for %s are not encrypted on the network; use https://", endpoint))
		}
	}
	if s.TLS.InsecureSkipVerify {
		out = append(out, "the certificates of SQS and SNS are not verified")
	}
	return out
}
