package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/internal/demo"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest/queuetest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/scripttest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) {
	scripttest.Main(kafkatest.Wrap(awstest.Wrap(pgtest.Wrap(m))), map[string]scripttest.Program{"outbox-cdc-demo": program})
}

// program is the program's main.
func program(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == demo.RelayCommand {
		return cli.Main(ctx, append([]string{"run"}, args[1:]...), environ, stdout, stderr)
	}
	return demo.Main(ctx, args, environ, stdout, stderr)
}

func TestScripts(t *testing.T) { scripttest.Run(t, "testdata/script") }

func TestServerScripts(t *testing.T) { scripttest.RunOnServers(t, "testdata/servers") }

// fact returns a number from the summary.
func fact(t *testing.T, out, what string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + what + ` +([\d,]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %q in the summary:\n%s", what, out)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sound checks the summary of a successful demo.
func sound(t *testing.T, out string) {
	t.Helper()
	rows, records := fact(t, out, "rows committed"), fact(t, out, "records received")
	if rows < 20 || records != rows {
		t.Errorf("%d rows, %d records", rows, records)
	}
	if n := fact(t, out, "rows rolled back"); n == 0 {
		t.Error("nothing was rolled back")
	}
	for _, what := range []string{"lost", "out of order", "unexpected", "duplicates"} {
		if n := fact(t, out, what); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences where there is no terminal")
	}
}

// A stage is a stdout that detects the directory of the embedded server. It can call a function when a text is
// printed.
type stage struct {
	out    bytes.Buffer
	server string // the server's directory
	on     string // when this is printed,
	do     func() // do is called
}

func (s *stage) Write(p []byte) (int, error) {
	if m := regexp.MustCompile(`a private server on [\d.]+:(\d+)`).FindSubmatch(p); m != nil {
		for _, parent := range []string{"/dev/shm", os.TempDir(), "/tmp"} {
			if sockets, _ := filepath.Glob(filepath.Join(parent, "*", ".s.PGSQL."+string(m[1]))); len(sockets) > 0 {
				s.server = filepath.Dir(sockets[0])
			}
		}
	}
	if s.do != nil && bytes.Contains(p, []byte(s.on)) {
		s.do()
	}
	return s.out.Write(p)
}

func (s *stage) String() string { return s.out.String() }

// nothingIsLeft checks that all files and processes of the embedded server are gone.
func (s *stage) nothingIsLeft(t *testing.T) {
	t.Helper()
	if s.server == "" {
		t.Fatalf("the embedded server was not seen:\n%s", s)
	}
	if _, err := os.Stat(s.server); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory %s: %v", s.server, err)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if data, err := os.ReadFile(command); err == nil && bytes.Contains(data, []byte(s.server)) {
			t.Errorf("process %s: %s", command, bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
		}
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	pgtest.Server(t) // skips the test without Postgres
	var stdout stage
	var stderr bytes.Buffer
	if err := demo.Run(t.Context(), demo.Options{For: 2 * time.Second, Rate: 50}, &stdout, &stderr); err != nil {
		t.Fatalf("Run: %v\n%s\n%s", err, &stdout, &stderr)
	}
	sound(t, stdout.String())
	if !regexp.MustCompile(`live page +http://127\.0\.0\.1:\d+/`).MatchString(stdout.String()) {
		t.Errorf("no address of the live page:\n%s", &stdout)
	}
	if stderr.Len() > 0 {
		t.Errorf("warnings:\n%s", &stderr)
	}
	stdout.nothingIsLeft(t)
}

// relayProcesses returns the processes of relays that the page of a demo names.
func relayProcesses(t *testing.T, page string) []int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"state", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var state struct{ Relays []struct{ PID int } }
	if err := json.NewDecoder(res.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, r := range state.Relays {
		pids = append(pids, r.PID)
	}
	return pids
}

// runs reports whether pid is a relay of a demo. A zombie has no command line.
func runs(pid int) bool {
	command, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Contains(command, []byte(demo.RelayCommand))
}

var pageAddress = regexp.MustCompile(`live page +(http://127\.0\.0\.1:\d+/)`)

// A relay that is killed, cut off from Kafka and frozen loses nothing, and stores nothing twice or in another order. A frozen
// one that wakes up finds that it has lost the slot.
func TestChaos(t *testing.T) {
	need.FullRun(t, "test/crash has the faults, and TestDemo runs always")
	pgtest.Server(t)
	others := goleak.IgnoreCurrent()
	defer func() {
		wait.For(t, "the end of the demo's goroutines", func() bool { return goleak.Find(others) == nil })
	}()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout := stage{on: "woke relay"}
	var pids []int
	stdout.do = func() {
		pids = relayProcesses(t, pageAddress.FindStringSubmatch(stdout.String())[1])
		cancel()
	}
	var stderr bytes.Buffer
	if err := demo.Run(ctx, demo.Options{Chaos: true, StrikeEvery: 40}, &stdout, &stderr); err != nil {
		t.Fatalf("Run: %v\n%s\n%s", err, &stdout, &stderr)
	}
	sound(t, stdout.String())
	for _, want := range []string{
		`killed relay \d, process \d+ .* took over`, `cut the connections to Kafka .* connected again`, `froze relay \d, .* took over`, `woke relay \d, .* shut out`,
		`killed once · frozen once · connections cut once · lost 0 · out of order 0 · duplicates 0`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout.String()) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if len(pids) != 2 || slices.ContainsFunc(pids, runs) {
		t.Errorf("relays %d, still running: %v", pids, slices.ContainsFunc(pids, runs))
	}
	stdout.nothingIsLeft(t)
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// On a real Kafka, nothing is stored twice either, and the demo deletes what it and the relays have created. It does not
// cut connections to it.
func TestChaosOnARealKafka(t *testing.T) {
	kafka := kafkatest.Real(t)
	pgtest.Server(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout := stage{on: "woke relay", do: cancel}
	if err := demo.Run(ctx, demo.Options{Chaos: true, StrikeEvery: 40, Brokers: kafka.Addrs}, &stdout, io.Discard); err != nil {
		t.Fatalf("Run: %v\n%s", err, &stdout)
	}
	sound(t, stdout.String())
	if want := "killed once · frozen once · connections cut 0 times · lost 0 · out of order 0 · duplicates 0"; !strings.Contains(stdout.String(), want) {
		t.Errorf("no %q in\n%s", want, &stdout)
	}
	topics, err := kafka.Admin(t).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range topics.Names() {
		if strings.Contains(name, "demo") {
			t.Errorf("topic %s was left behind", name)
		}
	}
}

// No relay outlives a demo that is killed, not even a frozen one.
func TestRelaysEndWithTheDemo(t *testing.T) {
	need.FullRun(t, "TestDemo runs always")
	db := pgtest.Database(t)
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Args = []string{"outbox-cdc-demo", "--chaos", "--dsn", db.DSN}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), "first order"); {
		text.WriteString(lines.Text() + "\n")
	}
	address := pageAddress.FindStringSubmatch(text.String())
	if address == nil {
		t.Fatalf("no page:\n%s", &text)
	}
	pids := relayProcesses(t, address[1])
	if len(pids) != 2 || !runs(pids[0]) || !runs(pids[1]) {
		t.Fatalf("relays %d", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	wait.For(t, "the end of the relays", func() bool { return !slices.ContainsFunc(pids, runs) })
}

func TestInterruptEndsWithTheSummary(t *testing.T) {
	need.FullRun(t, "TestDemo runs always")
	t.Parallel()
	sound(t, interrupted(t, "confirmed", 2)) // it prints such a line every second
}

// With each broker that the demo can start, every event arrives, the demo can be interrupted, and nothing is left behind.
func TestDemoOverEachBroker(t *testing.T) {
	for kind, installed := range map[string]bool{"jetstream": false, "webhook": false, "redis_streams": true, "rabbitmq": true} {
		t.Run(kind, func(t *testing.T) {
			if installed {
				need.FullRun(t, "it needs an installed server")
			}
			db := pgtest.Database(t)
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stdout := stage{on: " 1 s  rows", do: cancel}
			if err := demo.Run(ctx, demo.Options{DSN: db.DSN, Sink: kind, Rate: 50}, &stdout, io.Discard); err != nil {
				t.Fatalf("Run: %v\n%s", err, &stdout)
			}
			sound(t, stdout.String())
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// The demo counts what a broker has, not what the relay has sent: another program sends an event again, and invents one.
func TestForeignMessagesAreFound(t *testing.T) {
	need.FullRun(t, "TestDemo runs always")
	t.Parallel()
	db := pgtest.Database(t)
	server := natstest.Start(t)
	conn := server.Connect(t)
	var once sync.Once
	_, err := conn.Subscribe("*.order", func(m *nats.Msg) {
		once.Do(func() {
			m.Header.Del(nats.MsgIdHdr)
			again, invented := nats.NewMsg(m.Subject), nats.NewMsg(m.Subject)
			again.Header = m.Header
			for _, m := range []*nats.Msg{again, invented} {
				if err := conn.PublishMsg(m); err != nil {
					t.Error(err)
				}
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	var stdout stage
	err = demo.Run(t.Context(), demo.Options{DSN: db.DSN, Sink: "jetstream", Brokers: server.Addrs, Rate: 50, For: time.Second}, &stdout, io.Discard)
	if !errors.Is(err, demo.ErrBroken) {
		t.Errorf("Run = %v", err)
	}
	for what, want := range map[string]int{"lost": 0, "out of order": 0, "unexpected": 1, "duplicates": 1} {
		if n := fact(t, stdout.String(), what); n != want {
			t.Errorf("%s: %d, want %d", what, n, want)
		}
	}
	for name := range server.JetStream(t).StreamNames(natstest.Context(t)).Name() {
		t.Errorf("stream %s was left behind", name)
	}
}

// A program that is not installed is named, with how to install it and the alternative.
func TestBrokerThatIsNotInstalled(t *testing.T) {
	db := pgtest.Database(t)
	t.Setenv("PATH", t.TempDir())
	for kind, program := range map[string]string{"redis_streams": "redis-server", "rabbitmq": "rabbitmq-server"} {
		var stderr bytes.Buffer
		code := demo.Main(t.Context(), []string{"--sink", kind, "--dsn", db.DSN}, nil, io.Discard, &stderr)
		want := program + " is not installed: install it (sudo apt install " + program + ","
		if text := stderr.String(); code != 2 || !strings.Contains(text, want) || !strings.Contains(text, "--brokers localhost:") {
			t.Errorf("%s: exit code %d\n%s", kind, code, text)
		}
	}
}

// On a given server, the demo deletes what it has created.
func TestDemoOnGivenBrokers(t *testing.T) {
	run := func(t *testing.T, kind, server string) {
		t.Helper()
		pgtest.Server(t)
		var stdout stage
		if err := demo.Run(t.Context(), demo.Options{Sink: kind, Brokers: []string{server}, Rate: 50, For: time.Second}, &stdout, io.Discard); err != nil {
			t.Fatalf("Run: %v\n%s", err, &stdout)
		}
		sound(t, stdout.String())
	}
	t.Run("redis_streams", func(t *testing.T) {
		server := redistest.Start(t, redistest.Config{})
		run(t, "redis_streams", server.Addr())
		if keys, err := server.Admin().Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("keys %q, %v", keys, err)
		}
	})
	t.Run("rabbitmq", func(t *testing.T) {
		server := rabbittest.Start(t, rabbittest.Config{})
		run(t, "rabbitmq", server.Addr())
		if left := server.Run(t, "list_queues", "name") + server.Run(t, "list_exchanges", "name"); strings.Contains(left, "demo") {
			t.Errorf("left behind:\n%s", left)
		}
	})
	t.Run("sqs", func(t *testing.T) {
		url := awstest.ElasticMQ(t)
		run(t, "sqs", url)
		if queues, err := queuetest.New(url).ListQueues(t.Context(), nil); err != nil || len(queues.QueueUrls) > 0 {
			t.Errorf("queues %v, %v", queues, err)
		}
	})
}

func TestInterruptDuringSetUp(t *testing.T) {
	if out := interrupted(t, "kfake", 1); strings.Contains(out, "rows committed") {
		t.Errorf("a summary of nothing:\n%s", out)
	}
}

// interrupted runs a demo and interrupts it when a text is printed for the nth time.
func interrupted(t *testing.T, on string, nth int) string {
	t.Helper()
	pgtest.Server(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout := stage{on: on, do: func() {
		if nth--; nth == 0 {
			cancel()
		}
	}}
	if err := demo.Run(ctx, demo.Options{Rate: 50}, &stdout, io.Discard); err != nil {
		t.Fatalf("Run: %v\n%s", err, &stdout)
	}
	stdout.nothingIsLeft(t)
	return stdout.String()
}

func TestErrorLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pgtest.Server(t)
	var stdout stage
	stdout.on = "confirmed"
	stdout.do = func() {
		pid, _, _ := strings.Cut(readFile(t, filepath.Join(stdout.server, "data", "postmaster.pid")), "\n")
		postmaster, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(postmaster, syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		stdout.do = nil
	}
	err := demo.Run(t.Context(), demo.Options{}, &stdout, io.Discard)
	if err == nil || errors.Is(err, demo.ErrBroken) {
		t.Errorf("Run = %v, want the order service's error", err)
	}
	if !strings.Contains(stdout.String(), "✘") {
		t.Errorf("the summary knows of no error:\n%s", &stdout)
	}
	stdout.nothingIsLeft(t)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opts := range []demo.Options{
		{For: -1}, {Rate: -1}, {Sink: "pulsar"}, {Sink: "sqs"}, {Sink: "webhook", Brokers: []string{"127.0.0.1:1"}}, {Sink: "webhook", Chaos: true},
	} {
		if err := demo.Run(t.Context(), opts, io.Discard, io.Discard); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

// shop returns the DSN of a role that can create schemas and publications, but cannot replicate.
func shop(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	role := "shop_" + db.Name
	db.Exec(t, `CREATE ROLE `+role+` LOGIN; GRANT CREATE ON DATABASE `+db.Name+` TO `+role)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.WithoutCancel(t.Context()), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(db.DSN, "//postgres@", "//"+role+"@", 1)
}

// On given servers, the demo creates the objects that it needs and drops them at the end.
func TestDemoOnGivenServers(t *testing.T) {
	need.FullRun(t, "TestDemo runs always")
	db := pgtest.Database(t)
	objects := func() []string {
		return pgtest.QueryRow[[]string](t, db, `
			SELECT array_agg(name ORDER BY name) FROM (
				SELECT nspname::text AS name FROM pg_namespace
				UNION ALL SELECT pubname FROM pg_publication
				UNION ALL SELECT slot_name FROM pg_replication_slots WHERE database = current_database()
			) AS o WHERE name !~ '^pg_t'`)
	}
	cluster, err := kfake.NewCluster(kfake.SeedTopics(1, "theirs"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before := objects()
	for name, test := range map[string]struct {
		opts  demo.Options
		check func(out string, err error)
	}{
		"performed": {
			demo.Options{DSN: db.DSN, Brokers: cluster.ListenAddrs(), For: time.Second},
			func(out string, err error) {
				if err != nil {
					t.Fatalf("Run: %v\n%s", err, out)
				}
				sound(t, out)
			},
		},
		"no brokers there": {
			demo.Options{DSN: db.DSN, Brokers: []string{"127.0.0.1:1"}},
			func(out string, err error) {
				if err == nil || !strings.Contains(err.Error(), "the broker cannot be reached") {
					t.Errorf("Run = %v\n%s", err, out)
				}
			},
		},
		"no right to replicate": {
			demo.Options{DSN: shop(t, db), Brokers: cluster.ListenAddrs()},
			func(out string, err error) {
				if !errors.Is(err, replication.ErrAccess) {
					t.Errorf("Run = %v\n%s", err, out)
				}
			},
		},
	} {
		var stdout bytes.Buffer
		err := demo.Run(t.Context(), test.opts, &stdout, io.Discard)
		test.check(stdout.String(), err)
		if after := objects(); !slices.Equal(after, before) {
			t.Errorf("%s: objects before %q, after %q", name, before, after)
		}
		topics, err := kadm.NewClient(client).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := topics.Names(); !slices.Equal(got, []string{"theirs"}) {
			t.Errorf("%s: topics %q", name, got)
		}
	}
}
