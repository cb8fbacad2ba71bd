package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// systemd verifies the units without a message, rates their exposure as low, and creates their user.
func TestSystemd(t *testing.T) {
	for _, tool := range []string{"systemd-analyze", "systemd-sysusers"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Missing(t, "no %s", tool)
		}
	}
	const binary = "/usr/local/bin/outbox-cdc"
	dir := t.TempDir()
	for name, starts := range map[string]string{
		"outbox-cdc.service": binary + " run -c", "outbox-cdc-prune.service": binary + " prune -c", "outbox-cdc-prune.timer": "",
	} {
		unit := read(t, "systemd/"+name)
		// The verification requires that the program exists. Any program will do.
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(unit, binary, "/bin/true")), 0o600))
		if !strings.Contains(unit, starts) {
			t.Errorf("%s does not start %s", name, starts)
		}
	}
	for _, name := range []string{"outbox-cdc.service", "outbox-cdc-prune.timer", "outbox-cdc-prune.service"} {
		path := filepath.Join(dir, name)
		silent(t, "systemd-analyze", "verify", "--man=no", path)
		if filepath.Ext(name) != ".service" {
			continue
		}
		// systemd rates exposure from 0 to 10, and calls up to 2 fine. The threshold is in tenths.
		if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}

	must(t, os.Mkdir(filepath.Join(dir, "etc"), 0o700))
	sysusers, err := filepath.Abs("systemd/outbox-cdc.sysusers")
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), "systemd-sysusers", "--root="+dir, sysusers).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if users := read(t, filepath.Join(dir, "etc/passwd")); !strings.Contains(users, "outbox-cdc:") {
		t.Errorf("users: %s", users)
	}
}

// systemctl reload sends the signal that makes run reload its configuration.
func TestReload(t *testing.T) {
	if unit := read(t, "systemd/outbox-cdc.service"); !strings.Contains(unit, "\nExecReload=/bin/kill -HUP $MAINPID\n") {
		t.Error("the unit has no such line")
	}
}

// silent runs a command and fails if it writes anything.
func silent(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// The unit prevents a restart after exactly those exit codes that need an operator according to the runbook.
func TestRestarts(t *testing.T) {
	page := regexp.MustCompile(`(?m)^Codes ([0-9, and]+) need a person`).FindStringSubmatch(read(t, "../docs/runbook.md"))
	unit := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindStringSubmatch(read(t, "systemd/outbox-cdc.service"))
	if page == nil || unit == nil {
		t.Fatal("the page or the unit has no list")
	}
	codes := regexp.MustCompile(`\d+`)
	want, got := strings.Join(codes.FindAllString(page[1], -1), " "), strings.Join(codes.FindAllString(unit[1], -1), " ")
	if got != want {
		t.Errorf("the unit has %s, the page %s", got, want)
	}
}
