package test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/cutproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// message is what a line of the log says, in the text format.
var message = regexp.MustCompile(`(?m)^time=\S+ level=(\S+) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// While a broker is away for long, rows keep coming: that it is away, what that leads to and that
// it is over are one line each, and nothing else is said.
func TestOneLinePerStateChange(t *testing.T) {
	t.Parallel()
	proxy := cutproxy.Start(t, "")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen))
	r := newRig(t, pgtest.Database(t), fake.Cluster)
	process := start(t, "run", "-c", r.config, "--set", "position_topic=")
	process.logged(t, "streaming")
	r.load.run(t.Context(), t, 100)
	r.arrived(t, 30*time.Second)

	begun := len(process.stderr.String())
	proxy.Refuse()
	proxy.Cut()
	for stalled := time.Now(); time.Since(stalled) < 40*time.Second; time.Sleep(time.Second) {
		r.load.run(t.Context(), t, 50)
	}
	must(t, proxy.Accept())
	r.arrived(t, time.Minute)
	process.logged(t, "sink recovered")
	time.Sleep(2 * time.Second) // a line too many would come now

	said := map[string]int{}
	for _, line := range message.FindAllStringSubmatch(process.stderr.String()[begun:], -1) {
		said[line[1]+" "+strings.Trim(line[2], `"`)]++
	}
	for line, n := range said {
		if n > 1 {
			t.Errorf("%d times: %s", n, line)
		}
	}
	if said["ERROR sink stalled"] != 1 || said["INFO sink recovered"] != 1 || len(said) > 4 {
		t.Errorf("said: %v", said)
	}
	t.Logf("said: %v", said)
	process.terminate(t)
	r.settle(t, 0)
}

// On a terminal the log is text, elsewhere JSON.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		need.Missing(t, "no script(1)")
	}
	args := " run --dsn postgres://u@127.0.0.1:1/db --publication p --slot s --brokers 127.0.0.1:1 --set startup_timeout=1s --set admin.listen="
	for name, tc := range map[string]struct {
		cmd  *exec.Cmd
		want string
	}{
		"terminal": {exec.CommandContext(t.Context(), "script", "-qec", binary(t)+args, "/dev/null"), " level=INFO msg=starting "},
		"pipe":     {exec.CommandContext(t.Context(), "sh", "-c", binary(t)+args), `"level":"INFO","msg":"starting"`},
	} {
		out, err := tc.cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, want %q:\n%s", name, err, tc.want, out)
		}
	}
}
