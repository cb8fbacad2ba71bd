package e2e

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// resourcesAfterLoad runs some load, stops the process and returns its number of open files and
// goroutines.
func resourcesAfterLoad(t *testing.T, r *rig.Rig, process *rig.Process) (files, goroutines int) {
	t.Helper()
	rig.UnderLoad(t, r, func() { <-time.After(1500 * time.Millisecond) }) // by now the relay has opened everything
	r.Confirmed(t)
	process.Flat(t)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", process.Cmd.Process.Pid))
	rig.Must(t, err)
	process.Signal(t, syscall.SIGQUIT)
	process.Exit(t)
	return len(open), strings.Count(process.Stderr.String(), "\ngoroutine ")
}

// The relay loses its connections to Postgres, to Kafka or to both fifty times. It resends nothing after
// it reconnects, and leaves neither files nor goroutines behind.
func TestNothingIsLeftOfReconnects(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it reconnects many times")
	r, fake, toPostgres, toKafka := rig.NewCut(t)
	r.Collector.Stop() // it would reconnect too
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		for i := range 50 {
			sessions, events := process.Times("msg=streaming"), stored(r.Topic, fake)
			if i%3 != 0 {
				toKafka.Cut()
			}
			if i%3 != 1 {
				toPostgres.Cut()
				process.LoggedTimes(t, "msg=streaming", sessions+1)
			}
			wait.For(t, "records to be stored", func() bool { return stored(r.Topic, fake) > events })
		}
	})
	if n := process.Times("the role is a superuser"); n != 1 {
		t.Errorf("said %d times that the role is a superuser", n)
	}
	files, goroutines := resourcesAfterLoad(t, r, process)
	wantFiles, wantGoroutines := resourcesAfterLoad(t, r, r.Run(t))
	t.Logf("%d files and %d goroutines; %d and %d in a fresh process", files, goroutines, wantFiles, wantGoroutines)
	if wantGoroutines == 0 || files > wantFiles+1 || goroutines > wantGoroutines+2 {
		t.Error("something is left over")
	}
	r.SettleOnce(t, r.Kafka.ReadAll(t, r.Topic), delivery.Config{})
}

// limitFiles sets how many files the running process may open.
func limitFiles(t *testing.T, r *rig.Process, n int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "prlimit", "--pid", strconv.Itoa(r.Cmd.Process.Pid), "--nofile="+strconv.Itoa(n)+":").CombinedOutput()
	if err != nil {
		t.Fatalf("prlimit: %v\n%s", err, out)
	}
}

// Without a free file descriptor, the relay cannot reconnect. It logs that, keeps retrying, and continues
// when descriptors are available.
func TestNoFileDescriptorLeft(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	r, _, toPostgres, toKafka := rig.NewCut(t)
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		limitFiles(t, process, 3)
		toPostgres.Cut()
		toKafka.Cut()
		process.Logged(t, "too many open files")
		r.Silent(t)
		limitFiles(t, process, 1024)
		r.Recover(t)
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// If the process may not open enough files at the start, it stops and names the reason.
func TestTooFewFileDescriptors(t *testing.T) {
	need.FullRun(t, "TestStartErrors runs always")
	t.Parallel()
	r := rig.New(t)
	const few = `exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- prlimit --nofile=8 "$@"` // without files that the test has inherited
	process := rig.StartProgram(t, "sh", "-c", few, "sh", rig.Binary(t), "run", "-c", r.Config, "--set", "startup_timeout=1s")
	code := process.Exit(t)
	if out := process.Stderr.String(); code != exit.Source && code != exit.Sink || !strings.Contains(out, "too many open files") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// The relay needs no disk, no home directory and no privilege. The test runs it as nobody, without
// capabilities, with read-only file systems, and configured by its environment and flags only.
func TestNeedsNoDisk(t *testing.T) {
	need.FullRun(t, "the landing walk runs the same binary")
	t.Parallel()
	r := rig.New(t)
	rig.Must(t, os.Chmod(filepath.Dir(rig.Binary(t)), 0o755)) // another user must be able to run the binary
	const confine = `
		for m in $(cut -d' ' -f2 /proc/self/mounts); do mount -o remount,bind,ro "$m" 2>/dev/null; done
		for d in / /tmp /var/tmp /dev/shm /run; do
			if touch "$d/outbox-cdc-test" 2>/dev/null; then echo "$d is writable"; exit 99; fi
		done
		exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
			env -i OUTBOX_CDC_LOG_FORMAT=text "$@"`
	process := rig.StartProgram(t, "unshare", "--mount", "sh", "-c", confine, "sh", rig.Binary(t), "run",
		"--dsn", r.DB.DSN, "--publication", rig.Publication, "--slot", r.Slot, "--brokers", r.Kafka.Addrs[0], "--set", "outbox.topic="+r.Topic)
	process.Logged(t, "streaming")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Cmd.Process.Pid))
	rig.Must(t, err)
	for _, want := range []string{"\nUid:\t65534\t65534", "\nCapEff:\t0000000000000000", "\nCapBnd:\t0000000000000000", "\nNoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the process does not have %q:\n%s", want, status)
		}
	}
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// Two relays in one process are independent. After one of them fails, the other one continues with its own
// rows, topic and slot.
func TestTwoRelaysInOneProcess(t *testing.T) {
	t.Parallel()
	srv, cluster := pgtest.Server(t), kafkatest.Fake(t).Cluster // both relays share the position topic
	const ddl = `CREATE TABLE outbox ` + outboxColumns
	ends, stays := watch(t, srv, cluster, ddl), watch(t, srv, cluster, ddl)
	for name, w := range map[string]*watched{"ends": ends, "stays": stays} {
		w.cfg.Name, w.cfg.Positions = name, position.Place{Topic: position.DefaultTopic}
		w.run(t).delivers(t, "outbox")
	}
	ends.exec(t, `DROP PUBLICATION `+rig.Publication)
	ends.fails(t, exit.NoDelivery, rig.Publication)
	for range 3 {
		stays.delivers(t, "outbox")
	}
	stays.stop()
	stays.fails(t, exit.OK)
	if n := len(cluster.ReadAll(t, stays.topic)); n != stays.rows {
		t.Errorf("%d records, want %d", n, stays.rows)
	}
	for _, w := range []*watched{ends, stays} {
		for line := range strings.Lines(w.log.String()) {
			if !strings.Contains(line, "slot="+w.cfg.Source.Slot) || !strings.Contains(line, "name="+w.cfg.Name) {
				t.Errorf("a line of %s names no slot, or another: %s", w.cfg.Name, line)
			}
		}
	}
}

// clockTamper shifts the server's clock in every transaction, by up to five hours ahead or 55 minutes
// behind.
func clockTamper(t *testing.T) walproxy.Tamper {
	t.Helper()
	const ( // where in a CopyData message: type, start, end, time, and pgoutput's Begin or Commit
		sent      = 17
		begun     = 25 + 1 + 8
		committed = 25 + 1 + 1 + 8 + 8
		alive     = 9 // in a keepalive
	)
	seed := rand.Uint64()
	t.Logf("seed of the clock: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex // two connections share the clock
	var jump time.Duration
	return walproxy.Tamper{FromServer: func(kind byte, body []byte, pass func([]byte)) {
		mu.Lock()
		shift := func(at int) {
			binary.BigEndian.PutUint64(body[at:], binary.BigEndian.Uint64(body[at:])+uint64(jump.Microseconds()))
		}
		switch {
		case kind != 'd' || len(body) == 0:
		case body[0] == 'k':
			shift(alive)
		case body[0] == 'w':
			switch walproxy.ParseWAL(body).Kind {
			case 'B':
				jump = time.Duration(rng.Int64N(int64(6*time.Hour))) - 55*time.Minute
				shift(begun)
			case 'C':
				shift(committed)
			}
			shift(sent)
		}
		mu.Unlock()
		pass(body)
	}}
}

// The database's clock is wrong and jumps. It delays nothing, and no record has a timestamp so far in the future
// that a broker could reject it. A timestamp in the past stays, because it is the commit's.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it delivers thousands of rows through a proxy")
	srv := pgtest.Server(t)
	r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
	proxy := walproxy.Start(t, walproxy.Config{Target: srv.Addr(), Tamper: clockTamper(t)})
	r.Config = rig.WriteConfig(t, strings.Replace(r.DB.DSN, srv.Addr(), proxy.Addr(), 1), r.Kafka.Addrs[0], r.Slot, r.Topic, "")
	process := r.Run(t)
	r.Deliver(t, 5000)
	process.Terminate(t)
	r.Settle(t, 0)

	behind, now := 0, 0
	records, read := r.Kafka.ReadAll(t, r.Topic), time.Now()
	for _, rec := range records {
		switch age := read.Sub(rec.Timestamp); {
		case age > time.Minute:
			behind++
		case age >= 0:
			now++
		}
	}
	if behind < len(records)/20 || now < len(records)/2 {
		t.Errorf("of %d records %d are from the past and %d from now: the clock did not jump", len(records), behind, now)
	}
}

// Distributions and hardened builds create position-independent executables.
func TestPositionIndependentExecutable(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "another compilation of every package")
	r := rig.New(t)
	program := filepath.Join(t.TempDir(), "outbox-cdc")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=pie", "-o", program, rig.Module+"/cmd/outbox-cdc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	process := rig.StartProgram(t, program, "run", "-c", r.Config)
	process.Logged(t, "msg=streaming")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
