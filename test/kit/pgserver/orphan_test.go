//go:build unix

package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// ownerVariable is the environment variable that makes the test binary start
// a server and wait. The test then kills that process.
const ownerVariable = "PGSERVER_TEST_OWNER"

func own() {
	s, err := Start(context.Background(), Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.PID(), s.socketDir())
	select {}
}

func TestNothingOutlivesTheOwner(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	_, err = fmt.Fscan(bufio.NewReader(out), &pid, &dir)
	children, _ := childrenOf(t.Context(), pid)
	owner.Process.Signal(syscall.SIGKILL)
	owner.Wait()
	if err != nil || len(children) == 0 {
		t.Fatalf("postmaster %d with children %v: %v", pid, children, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, p := range append(children, pid) {
		if err := waitGone(ctx, p); err != nil {
			t.Error(err)
		}
	}
	for tick := time.Tick(5 * time.Millisecond); ctx.Err() == nil; <-tick {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
	}
	t.Errorf("directory %s was not removed", dir)
}

// Stop after Kill removes the shared memory segment that postmaster.pid names.
func TestKilledForGoodLeavesNoSharedMemory(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	if _, err := os.Stat("/proc/sysvipc/shm"); err != nil {
		t.Log("this system does not list its shared memory")
		return
	}
	s := start(t, Config{})
	pidFile, err := os.ReadFile(s.DataDir() + "/postmaster.pid")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(strings.Split(string(pidFile), "\n")[6])
	listed := func() bool {
		segments, err := os.ReadFile("/proc/sysvipc/shm")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(segments)) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == fields[1] {
				return true
			}
		}
		return false
	}
	if !listed() {
		t.Fatalf("shared memory segment %v does not exist", fields)
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if listed() {
		t.Errorf("shared memory segment %v was not removed", fields)
	}
}
