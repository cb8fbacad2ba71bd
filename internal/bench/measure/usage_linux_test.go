package measure

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestCPUTimeOfAProcessWithAnOddName(t *testing.T) {
	stat := "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 70 30 5 1 20 0 9 0 100 1 2"
	if got := cpuTime([]byte(stat)); got != 1060*time.Millisecond {
		t.Errorf("%s, want 1.06s", got)
	}
}

func TestMemoryOfAStatus(t *testing.T) {
	status := []byte("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
	if got := memory(status, "VmHWM:"); got != 2<<20 {
		t.Errorf("%d", got)
	}
	if got := memory([]byte("Name:\tx\n"), "VmHWM:"); got != 0 {
		t.Errorf("%d of a process without memory", got)
	}
}

func TestUsageGrowsWithWork(t *testing.T) {
	before, ok := usage(os.Getpid())
	if !ok || before.RSS == 0 || before.PeakRSS < before.RSS {
		t.Fatalf("%+v, %t", before, ok)
	}
	exactly := ThreadTime(os.Getpid())
	wait.For(t, "the used CPU time to grow", func() bool {
		for range 1 << 20 { // use the CPU
			runtime.Gosched()
		}
		after, _ := usage(os.Getpid())
		return after.CPU > before.CPU && ThreadTime(os.Getpid()) > exactly
	})
	if _, ok := usage(1 << 30); ok {
		t.Error("usage of a process that does not exist")
	}
}

func TestUsageHasTheChildren(t *testing.T) {
	// A shell that waits, with a child that uses the CPU.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `while :; do :; done & echo started; wait`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	pids := children(cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("children %v", pids)
	}
	defer func() {
		for _, pid := range append(pids, cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	alone := func() time.Duration {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return cpuTime(stat)
	}
	var u Usage
	wait.For(t, "the CPU time of the child", func() bool {
		var ok bool
		u, ok = usage(cmd.Process.Pid)
		return ok && u.CPU > alone() && u.PeakRSS >= u.RSS
	}, func() any { return fmt.Sprintf("%+v", u) })
}
