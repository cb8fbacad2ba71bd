package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Limits for the relay's memory under any load, in MiB. How many pages of the binary and its libraries are resident, 24 to 26 MB, is
// no matter of the load.
const (
	MaxResident  = 42 // with those pages
	MaxAnonymous = 18 // without them: the window, the rest of the heap, and the stacks
)

// Flat fails the test if the relay's peak resident memory, without pages of files, exceeds MaxAnonymous.
func (r *Process) Flat(t *testing.T) {
	t.Helper()
	m := r.Memory(t)
	t.Logf("resident memory %+v MB", m)
	if peak := m.Peak - m.Files; peak > MaxAnonymous {
		t.Errorf("peak resident memory without pages of files was %d MB, the limit is %d MB", peak, MaxAnonymous)
	}
}

// A Memory is the resident memory of a process, in MB. The pages of files, once resident, stay so unless the machine runs out of
// memory: the peak has about as many as there are now.
type Memory struct{ Now, Peak, Anonymous, Files int }

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
	fields := map[string]*int{"VmRSS:": &m.Now, "VmHWM:": &m.Peak, "RssAnon:": &m.Anonymous, "RssFile:": &m.Files}
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
