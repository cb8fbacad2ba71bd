package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { pgtest.Main(kafkatest.Wrap(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	must(t, yaml.Unmarshal([]byte(read(t, path)), into))
}

// build runs the build command of the Dockerfile, and returns a directory with the files of its last stage,
// except the CA certificates.
func build(t *testing.T, dockerfile string) (root string) {
	t.Helper()
	need.FullRun(t, "it builds with flags of its own, which compiles every dependency again")
	command := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 .*go build .*)$`).FindStringSubmatch(read(t, dockerfile))
	if command == nil {
		t.Fatalf("%s builds nothing", dockerfile)
	}
	root = t.TempDir()
	must(t, os.Chmod(root, 0o755)) // the mode of /
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(command[1], "/out/", root+"/"))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TARGETOS=", "TARGETARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command[1], err, out)
	}
	return root
}

// confine runs a program with a directory as its read-only root, without privileges and without a way to gain any.
// The manifests request the same from a container runtime.
const confine = `
	mount --bind "$0" "$0"
	mount -o remount,bind,ro "$0"
	exec setpriv --no-new-privs unshare --root="$0" --wd=/ --setuid=65532 --setgid=65532 "$@"`

// A container is a confined process.
type container struct {
	cmd    *exec.Cmd
	output string        // path of the output file
	done   chan struct{} // closed when the process has exited
}

// start runs args with only env in its environment. The first argument is a path in root.
func start(t *testing.T, root string, env map[string]string, args ...string) *container {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, "to confine a process takes root")
	}
	for _, tool := range []string{"unshare", "setpriv", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Missing(t, "no %s (util-linux)", tool)
		}
	}
	c := &container{output: filepath.Join(t.TempDir(), "output"), done: make(chan struct{})}
	output, err := os.Create(c.output)
	must(t, err)
	defer output.Close()
	c.cmd = exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-euc", confine, root}, args...)...)
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range env {
		c.cmd.Env = append(c.cmd.Env, name+"="+value)
	}
	c.cmd.Stdout, c.cmd.Stderr = output, output
	must(t, c.cmd.Start())
	go func() { // the cleanup waits for this goroutine
		defer close(c.done)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if t.Failed() {
			t.Logf("%s\n%s", strings.Join(args, " "), read(t, c.output))
		}
	})
	return c
}

// exits waits for the process to exit, and fails unless the exit code is 0.
func (c *container) exits(t *testing.T) {
	t.Helper()
	wait.Receive(t, c.cmd.String()+" to exit", c.done)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, read(t, c.output))
	}
}

// terminate sends SIGTERM.
func (c *container) terminate(t *testing.T) {
	t.Helper()
	must(t, c.cmd.Process.Signal(syscall.SIGTERM))
	c.exits(t)
}

// says waits until the output matches pattern, and returns the submatches.
func (c *container) says(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var said []string
	wait.For(t, "the output "+pattern, func() bool {
		ended := false
		select {
		case <-c.done:
			ended = true
		default:
		}
		if said = re.FindStringSubmatch(read(t, c.output)); said == nil && ended {
			t.Fatalf("exited without output %s\n%s", pattern, read(t, c.output))
		}
		return said != nil
	})
	return said
}

// confined fails unless the kernel applies the restrictions to the process.
func (c *container) confined(t *testing.T) {
	t.Helper()
	proc := "/proc/" + strconv.Itoa(c.cmd.Process.Pid)
	status := read(t, proc+"/status")
	for _, want := range []string{
		"\nUid:\t65532\t65532\t65532\t65532\n", "\nGid:\t65532\t65532\t65532\t65532\n", "\nGroups:\t \n",
		"\nCapPrm:\t0000000000000000\n", "\nCapEff:\t0000000000000000\n", "\nNoNewPrivs:\t1\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status of the process lacks %q:\n%s", want, status)
		}
	}
	if err := os.WriteFile(filepath.Join(proc, "root", "written"), nil, 0o600); err == nil {
		t.Error("root can write to its root directory")
	}
}
