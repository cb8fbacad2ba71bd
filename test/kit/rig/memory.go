package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// MaxResident is the limit for the relay's resident memory, in MiB, under any load. About 24 MB are pages of the binary.
const MaxResident = 42

// Flat fails the test if the relay's peak resident memory exceeds MaxResident.
func (r *Process) Flat(t *testing.T) {
	t.Helper()
	m := r.Memory(t)
	t.Logf("resident memory %+v MB", m)
	if m.Peak > MaxResident {
		t.Errorf("peak resident memory was %d MB, the limit is %d MB", m.Peak, MaxResident)
	}
}

// A Memory is the resident memory of a process, in MB.
type Memory struct{ Now, Peak, Anonymous int }

// Memory returns the resident memory of the running process. The peak that rusage reports for an exited
// process includes the memory of its parent before the exec, so Memory does not use it.
func (r *Process) Memory(t *testing.T) Memory {
	t.Helper()
	m, err := r.Resident()
	if err != nil {
		t.Fatalf("read the resident memory from /proc: %v", err)
	}
	return m
}

// Resident is like Memory, but returns an error if the process has exited.
func (r *Process) Resident() (m Memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
	if err != nil {
		return m, err
	}
	fields := map[string]*int{"VmRSS:": &m.Now, "VmHWM:": &m.Peak, "RssAnon:": &m.Anonymous}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && fields[f[0]] != nil {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				return m, err
			}
			*fields[f[0]] = kb / 1024
		}
	}
	return m, nil
}
