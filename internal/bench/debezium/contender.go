package debezium

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// Version is the connector's.
const Version = "3.7.0.Final"

// Names of the contenders.
const (
	DefaultName = "debezium-default"
	TunedName   = "debezium-tuned"
)

//go:embed connect.xml
var connectPOM []byte

//go:embed connector.xml
var connectorPOM []byte

// An Install is an installation of Java, Kafka Connect and Debezium.
type Install struct {
	Brokers   []string // of Kafka; set them before you use a contender
	java      string   // path
	connect   string   // directory of Kafka Connect's jars
	connector string   // directory of Debezium's jars
}

// Find returns an Install without Brokers. It downloads missing artifacts.
func Find(ctx context.Context) (Install, error) {
	java, _, err := kafkatest.Java(ctx)
	if err != nil {
		return Install{}, err
	}
	connect, err := kafkatest.Jars(ctx, "connect-"+kafkatest.Version(), connectPOM)
	if err != nil {
		return Install{}, err
	}
	connector, err := kafkatest.Jars(ctx, "debezium-"+Version, connectorPOM)
	return Install{java: java, connect: connect, connector: connector}, err
}

// Default returns Debezium with default settings. compression is compression.type
// of its producer.
func (i Install) Default(compression string) measure.Contender {
	return worker{i, DefaultName, tuning{}, compression}
}

// Tuned is Default with settings for throughput and latency: it polls every 5 ms,
// uses larger batches, flushes offsets every second and does not linger.
func (i Install) Tuned(compression string) measure.Contender {
	return worker{i, TunedName, tuned(), compression}
}

type worker struct {
	install     Install
	name        string
	tune        tuning
	compression string
}

func (w worker) Name() string { return w.name }

func (w worker) Produces() bool { return true }

func (w worker) Start(_ context.Context, t measure.Target) (*measure.Process, error) {
	if err := w.configure(t, t.Dir()); err != nil {
		return nil, fmt.Errorf("configure %s: %w", w.name, err)
	}
	return t.Spawn(w.command(t.Dir()))
}

// configure writes the worker's files into dir.
func (w worker) configure(t measure.Target, dir string) error {
	connector, err := w.connectorProperties(t)
	if err != nil {
		return err
	}
	if err := kafkatest.WriteProperties(filepath.Join(dir, connectorFile), connector); err != nil {
		return err
	}
	if err := kafkatest.WriteProperties(filepath.Join(dir, workerFile), w.workerProperties(dir)); err != nil {
		return err
	}
	return w.install.Plugins(filepath.Join(dir, pluginsDir))
}

func (w worker) command(dir string) *exec.Cmd {
	cmd := w.install.Command(filepath.Join(dir, workerFile), filepath.Join(dir, connectorFile))
	cmd.Dir = dir
	return cmd
}

// Plugins prepares dir as a directory for plugin.path with the connector.
func (i Install) Plugins(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Symlink(i.connector, filepath.Join(dir, "debezium")) // a plugin is a directory of jars
}

// Command returns the command of a standalone worker with one connector. The arguments are the paths of their
// files.
func (i Install) Command(worker, connector string) *exec.Cmd {
	args := slices.Concat([]string{"-Xms512m", "-Xmx1g"}, kafkatest.ScriptOptions(), []string{
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(i.connect, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", worker, connector,
	})
	return exec.Command(i.java, args...) //nolint:gosec,noctx // its end is the caller's business
}
