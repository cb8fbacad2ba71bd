package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// An ownBroker is a broker that this program has started.
type ownBroker struct {
	addr    string
	version string
	keys    map[string]string // configuration; % stands for the address
	environ []string          // of its clients

	// away and back stop and start the broker. Without them, a link takes the broker away from the relay.
	away, back func(context.Context) error

	stop func() error
}

const kafkaKind = "kafka"

// kinds are the brokers that can be started, by their section of the configuration.
func kinds() map[string]func(context.Context) (*ownBroker, error) {
	return map[string]func(context.Context) (*ownBroker, error){
		kafkaKind: startKafka, "jetstream": startNATS, "rabbitmq": startRabbitMQ, "redis_streams": startRedis, "sqs": startElasticMQ,
		"webhook": startReceiver,
	}
}

// startKafka starts Kafka. Its clients learn its addresses from it, so no link can take it away.
func startKafka(ctx context.Context) (*ownBroker, error) {
	s, err := kafkatest.Launch(ctx, kafkatest.Config{
		HeapMB: brokerHeapMB, JVM: kafkatest.ScriptOptions(),
		// A broker that creates thousands of partitions misses heartbeats.
		Properties: map[string]string{"broker.session.timeout.ms": "60000"},
	})
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	return &ownBroker{
		addr: strings.Join(s.Addrs, ","), version: "Kafka " + kafkatest.Version(), keys: map[string]string{"sink.kafka.brokers": "%"},
		away: s.Shutdown, back: s.Restart, stop: s.Stop,
	}, nil
}

func startRabbitMQ(ctx context.Context) (*ownBroker, error) {
	s, err := rabbittest.Launch(ctx, rabbittest.Config{})
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	version, err := s.Ctl(ctx, "version")
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return &ownBroker{
		addr: s.Addr(), version: "RabbitMQ " + strings.TrimSpace(version) + ", quorum queue",
		keys: map[string]string{"sink.rabbitmq.servers": "%", "sink.rabbitmq.user": "guest", "sink.rabbitmq.password": "guest"},
		stop: s.Stop,
	}, nil
}

func startRedis(ctx context.Context) (*ownBroker, error) {
	s, err := redistest.Launch(ctx, redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "everysec"}})
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	info, err := s.Admin().Info(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r")
	return &ownBroker{
		addr: s.Addr(), version: "Redis " + version + ", appendfsync everysec", keys: map[string]string{"sink.redis_streams.addresses": "%"},
		stop: s.Stop,
	}, nil
}

// startElasticMQ starts a server of SQS, which accepts any credentials.
func startElasticMQ(ctx context.Context) (*ownBroker, error) {
	s, err := awstest.LaunchElasticMQ(ctx)
	if err != nil {
		return nil, fmt.Errorf("start ElasticMQ: %w", err)
	}
	for _, v := range anyCredentials() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return &ownBroker{
		addr: s.Addr(), version: "ElasticMQ " + awstest.ElasticMQVersion + ", FIFO queue",
		keys: map[string]string{
			"sink.sqs.sqs_endpoint": "http://%", "sink.sqs.region": awstest.Region,
			"outbox.topic": "bench.fifo", // the default is none of SQS; the destinations of a measurement replace it
		},
		environ: anyCredentials(), stop: s.Stop,
	}, nil
}

// anyCredentials are environment variables with credentials for a server that accepts any.
func anyCredentials() []string {
	return []string{"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench"}
}

// startReceiver reserves a port for the receiver of webhooks, which is package broker's.
func startReceiver(context.Context) (*ownBroker, error) {
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, err
	}
	return &ownBroker{
		addr: port.Addr(), version: "Webhooks to net/http in the benchmark's process", keys: map[string]string{"sink.webhook.url": "http://%/"},
		stop: func() error {
			port.Close()
			return nil
		},
	}, nil
}

// natsName is the subcommand that runs a NATS server. The server is a library; in a process of its own it does not share a
// runtime with the consumer.
const natsName = "nats-server"

func startNATS(ctx context.Context) (*ownBroker, error) {
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, err
	}
	dir, err := serverproc.MakeDir("", "outbox-cdc-nats-")
	if err != nil {
		port.Close()
		return nil, err
	}
	n := &natsServer{port: port, dir: dir, log: serverproc.NewTail(nil)}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the NATS server: %w", err), n.stop())
	}
	return &ownBroker{
		addr: port.Addr(), version: "NATS " + server.VERSION + ", file storage", keys: map[string]string{"sink.jetstream.servers": "%"},
		stop: n.stop,
	}, nil
}

type natsServer struct {
	port *serverproc.Port
	dir  *serverproc.Dir
	log  *serverproc.Tail
	proc *serverproc.Process
}

func (n *natsServer) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, natsName, fmt.Sprint(n.port.Number()), n.dir.Path()) //nolint:gosec,noctx // ourselves; stop ends it
	cmd.Args[0] = programName
	cmd.Stdout, cmd.Stderr = n.log, n.log
	if n.proc, err = n.dir.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	tick := time.NewTicker(natsRetry)
	defer tick.Stop()
	for {
		if conn, err := nats.Connect(n.port.Addr()); err == nil {
			conn.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-n.proc.Done():
			return fmt.Errorf("it ended: %w\n%s", n.proc.Err(), n.log)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (n *natsServer) stop() error {
	var err error
	if n.proc != nil {
		err = n.proc.Signal(syscall.SIGKILL)
		<-n.proc.Done()
	}
	n.port.Close()
	return errors.Join(err, n.dir.Remove())
}
