package awstest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// ElasticMQVersion is the version in pom.xml.
const ElasticMQVersion = "1.7.1"

//go:embed pom.xml
var pom []byte

const (
	fetchTimeout = 5 * time.Minute
	startTimeout = 2 * time.Minute
)

// A server is a process that the tests of this binary share.
type server struct {
	mu   sync.Mutex
	url  string
	proc *serverproc.Process
	dir  *serverproc.Dir
	port *serverproc.Port
}

var elasticMQ, moto server //nolint:gochecknoglobals // one per test binary is the point

// ElasticMQ returns the URL of the ElasticMQ that the tests share, a server of SQS. It runs until [Main] returns. Unless the
// run is a full one, ElasticMQ skips the test.
func ElasticMQ(tb testing.TB) string {
	tb.Helper()
	need.FullRun(tb, "it needs ElasticMQ")
	return elasticMQ.start(tb, elasticMQCommand)
}

// elasticMQCommand returns the command of ElasticMQ. It downloads missing jars.
func elasticMQCommand(ctx context.Context, s *server) (*exec.Cmd, error) {
	java, _, err := kafkatest.Java(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := kafkatest.Jars(ctx, "elasticmq-"+ElasticMQVersion, pom)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir.Path(), "elasticmq.conf")
	text := fmt.Sprintf(`include classpath("application.conf")
node-address { host = "127.0.0.1", port = %d }
rest-sqs { bind-port = %d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
`, s.port.Number(), s.port.Number())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.Command(java, "-Xmx512m", "-XX:+UseSerialGC", "-Dconfig.file="+file, //nolint:gosec,noctx // no context ends the server
		"-cp", filepath.Join(jars, "*"), "org.elasticmq.server.Main"), nil
}

// start starts the server unless it runs, and returns its URL.
func (s *server) start(tb testing.TB, command func(context.Context, *server) (*exec.Cmd, error)) string {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.url != "" {
		return s.url
	}
	ctx, cancel := context.WithTimeout(tb.Context(), fetchTimeout)
	defer cancel()
	if err := s.launch(ctx, command); err != nil {
		need.Missing(tb, "no server for this test: %v", err)
	}
	return s.url
}

func (s *server) launch(ctx context.Context, command func(context.Context, *server) (*exec.Cmd, error)) error {
	var err error
	if s.dir, err = serverproc.MakeDir("", "outbox-cdc-aws-"); err != nil {
		return err
	}
	if s.port, err = serverproc.ReservePort(); err != nil {
		return errors.Join(err, s.dir.Remove())
	}
	cmd, err := command(ctx, s)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	log := serverproc.NewTail(nil)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir.Path(), log, log
	if s.proc, err = s.dir.Start(cmd, syscall.SIGKILL); err != nil {
		return errors.Join(err, s.stop())
	}
	if err := s.awaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, log), s.stop())
	}
	s.url = "http://" + s.port.Addr()
	return nil
}

// awaitReady blocks until the server answers HTTP requests.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.port.Addr(), http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-tick.C:
		case <-s.proc.Done():
			return fmt.Errorf("the server ended: %w", s.proc.Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop kills the server and removes its directory.
func (s *server) stop() error {
	var err error
	if s.proc != nil {
		err = s.proc.Signal(syscall.SIGKILL)
		<-s.proc.Done()
	}
	s.port.Close()
	err = errors.Join(err, s.dir.Remove())
	s.url, s.proc = "", nil
	return err
}

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// Main runs m's tests, stops the shared servers and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the shared servers.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer func() {
		for _, s := range []*server{&elasticMQ, &moto} {
			s.mu.Lock()
			if s.proc != nil {
				_ = s.stop()
			}
			s.mu.Unlock()
		}
	}()
	return w.Runner.Run()
}
