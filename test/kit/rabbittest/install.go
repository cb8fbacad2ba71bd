package rabbittest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packageDir has RabbitMQ's own scripts in the packages of Linux distributions. The programs in PATH are wrappers that
// use the directories of the service and need its user.
const packageDir = "/usr/lib/rabbitmq/bin"

// ErrNotInstalled is the error of Launch if RabbitMQ or Erlang is not installed.
var ErrNotInstalled = errors.New("RabbitMQ is not installed")

// An install is an installation of RabbitMQ.
type install struct {
	scripts string // directory of rabbitmq-server and rabbitmqctl
	epmd    string // path of Erlang's port mapper
	erlCall string // path of Erlang's program that evaluates an expression on a node
}

func findInstall() (install, error) {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return install{}, fmt.Errorf("%w: it runs on Erlang: %w", ErrNotInstalled, err)
	}
	for _, dir := range append([]string{packageDir}, filepath.SplitList(os.Getenv("PATH"))...) {
		if info, err := os.Stat(filepath.Join(dir, "rabbitmq-env")); err == nil && info.Mode().IsRegular() { //nolint:gosec // a directory of PATH
			return install{scripts: dir, epmd: epmd, erlCall: filepath.Join(filepath.Dir(epmd), "erl_call")}, nil
		}
	}
	return install{}, fmt.Errorf("%w: no rabbitmq-server in %s or PATH; install the package rabbitmq-server", ErrNotInstalled, packageDir)
}

// command returns a command that runs a script of RabbitMQ with the environment env only: the variables RABBITMQ_* of
// this process are meant for other servers.
func (i install) command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(i.scripts, name), args...) //nolint:gosec,noctx // a script of the package; no context ends a server
	// A command that crashes leaves no erl_crash.dump in the directory of the test.
	cmd.Env = append([]string{"PATH=" + strings.Join([]string{filepath.Dir(i.epmd), "/usr/bin", "/bin"}, ":"), "LC_ALL=C.UTF-8", "ERL_CRASH_DUMP_BYTES=0"}, env...)
	return cmd
}
