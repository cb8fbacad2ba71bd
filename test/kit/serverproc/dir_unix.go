//go:build unix

package serverproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// warden is the script of a shell that outlives this process. The last line of its
// standard input names the process that runs in the directory $1 ("PID SIGNAL", or
// "0 0" for none). The input ends when this process has exited or has removed the
// directory.
const warden = `
cd / || exit 1
pid=0 sig=0
while read -r p s; do pid=$p sig=$s; done
if [ "$pid" -gt 0 ]; then
	kill -"$sig" "$pid"
	n=0
	while [ $n -lt 100 ] && kill -0 "$pid"; do sleep 0.1; n=$((n + 1)); done
	kill -s KILL "$pid"
fi
n=0
until rm -rf -- "$1" || [ $n -ge 20 ]; do sleep 0.1; n=$((n + 1)); done
`

// A Dir is a temporary directory in which at most one server process at a time
// runs. However this process exits, a shell soon kills the server and removes the
// directory.
type Dir struct {
	path   string
	warden *exec.Cmd
	pipe   io.WriteCloser

	mu sync.Mutex // guards writes to pipe
}

// MakeDir creates a directory of mode 0700 in parent. [os.MkdirTemp] documents
// pattern. The caller must call Remove.
func MakeDir(parent, pattern string) (*Dir, error) {
	path, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	if err := d.startWarden(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return d, nil
}

func (d *Dir) startWarden() error {
	d.warden = exec.Command("/bin/sh", "-c", warden, "sh", d.path) //nolint:gosec,noctx // our own text and path; it must outlive every context
	d.warden.Env = []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin"}
	d.warden.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the terminal does not reach it
	pipe, err := d.warden.StdinPipe()
	if err != nil {
		return err
	}
	d.pipe = pipe
	if err := d.warden.Start(); err != nil {
		return fmt.Errorf("start the shell that cleans up after us: %w", err)
	}
	return nil
}

// Path returns the absolute path of the directory.
func (d *Dir) Path() string { return d.path }

// Remove removes the directory and its files. The process started in it must have
// exited. A second Remove does nothing.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipe == nil {
		return err
	}
	_ = d.pipe.Close()
	d.pipe = nil
	return errors.Join(err, d.warden.Wait())
}

// watch tells the shell which process to signal, and with which signal, when this
// process has exited.
func (d *Dir) watch(pid int, sig syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipe == nil {
		return fmt.Errorf("directory %s has been removed: %w", d.path, os.ErrClosed)
	}
	_, err := fmt.Fprintf(d.pipe, "%d %d\n", pid, int(sig))
	return err
}
