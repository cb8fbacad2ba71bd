package config

import (
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
)

const (
	atRabbit    = "sink.rabbitmq."
	atRabbitTLS = "sink.rabbitmq.tls."

	minHeartbeat = 2 * time.Second
)

// RabbitMQ is a RabbitMQ server or cluster.
type RabbitMQ struct {
	Servers         []string
	VHost           string
	User            string
	Password        Secret
	PasswordFile    string
	ContentType     string
	Connections     int
	MaxMessageBytes int
	Heartbeat       time.Duration
	Window          Window
	TLS             TLS
}

func rabbitMQBroker() broker {
	return broker{
		kind: "rabbitmq", title: "RabbitMQ", system: "rabbitmq",
		names: func(*Config) encode.Names { return rabbitmq.Names{} },
		check: (*Config).checkRabbitMQ,
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.rabbitMQ()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn:      func(c *Config) []string { return c.linkWarnings("RabbitMQ", atRabbit, c.Sink.RabbitMQ.Servers) },
		addresses: func(c *Config) []string { return c.Sink.RabbitMQ.Servers },
		reloads: []replaced{
			replacedLogin(atRabbit, "password"),
			replacedTLS(atRabbitTLS),
		},
	}
}

// checkRabbitMQ reports keys of sink.rabbitmq that contradict each other.
func (c *Config) checkRabbitMQ() error {
	r := c.Sink.RabbitMQ
	errs := []error{c.checkPorts(atRabbit+"servers", 1, r.Servers...)}
	errs = append(errs, c.checkUser(atRabbit))
	if r.User == "" && len(r.Servers) > 0 && r.TLS.CertFile == "" {
		errs = append(errs, c.invalid(atRabbit+"servers", "requires %suser, or %scert_file with the certificate that identifies the user", atRabbit, atRabbitTLS))
	}
	if r.Heartbeat < minHeartbeat {
		errs = append(errs, c.invalid(atRabbit+"heartbeat", "found %s; the minimum is %s", r.Heartbeat, minHeartbeat))
	}
	_, err := c.encryption(atRabbitTLS)
	return join(append(errs, err)...)
}

// rabbitMQ returns the settings of sink.rabbitmq, or an [*Error] that names every missing key.
func (c *Config) rabbitMQ() (rabbitmq.Config, error) {
	r := c.Sink.RabbitMQ
	encryption, err := c.encryption(atRabbitTLS)
	if len(r.Servers) == 0 {
		err = join(missing(atRabbit+"servers"), err)
	}
	if err != nil {
		return rabbitmq.Config{}, err
	}
	cfg := rabbitmq.Config{
		Servers:         r.Servers,
		VHost:           r.VHost,
		User:            r.User,
		TLS:             encryption,
		ConnectionName:  c.clientID(),
		Heartbeat:       r.Heartbeat,
		Connections:     r.Connections,
		MaxMessageBytes: r.MaxMessageBytes,
		ContentType:     r.ContentType,
		WindowBytes:     r.Window.Bytes,
		WindowRecords:   r.Window.Records,
	}
	if r.User != "" {
		cfg.Password = func(context.Context) (string, error) { return c.currentSecret(atRabbit + "password") }
	}
	if err := cfg.Validate(); err != nil {
		return rabbitmq.Config{}, c.invalid("sink.rabbitmq", "%v", err)
	}
	return cfg, nil
}
