package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// message matches the level and the message of a log line in text format.
var message = regexp.MustCompile(`(?m)^time=\S+ level=(\S+) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// During a long broker outage with continuous writes, the relay logs the outage, its consequences and its
// end with one line each, and nothing else.
func TestOneLinePerStateChange(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it makes faults for most of a minute")
	proxy := faultproxy.Start(t, "")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen))
	r := rig.NewOn(t, rig.Database(t), fake.Cluster)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "position_topic=")
	process.Logged(t, "streaming")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)

	begun := len(process.Stderr.String())
	proxy.Refuse()
	for range 40 {
		r.Load.Run(t.Context(), t, 50)
		<-time.After(time.Second)
	}
	proxy.Accept()
	r.Arrived(t)
	process.Logged(t, "sink recovered")
	<-time.After(2 * time.Second) // a superfluous line would appear now

	said := map[string]int{}
	for _, line := range message.FindAllStringSubmatch(process.Stderr.String()[begun:], -1) {
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
	process.Terminate(t)
	r.Settle(t, 0)
}

// The log format is text on a terminal and JSON elsewhere.
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
		"terminal": {exec.CommandContext(t.Context(), "script", "-qec", rig.Binary(t)+args, "/dev/null"), " level=INFO msg=starting "},
		"pipe":     {exec.CommandContext(t.Context(), "sh", "-c", rig.Binary(t)+args), `"level":"INFO","msg":"starting"`},
	} {
		out, err := tc.cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, want %q:\n%s", name, err, tc.want, out)
		}
	}
}
