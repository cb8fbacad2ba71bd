package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// childrenOf returns the processes whose parent is pid.
func childrenOf(_ context.Context, pid int) ([]int, error) {
	var children []int
	for _, path := range glob("/proc/[0-9]*/stat") {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		if _, parent, ok := processState(child); ok && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

// processState reads proc_pid_stat(5): "pid (comm) state ppid …".
func processState(pid int) (state byte, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}

// alive reports whether pid runs. A zombie does not run.
func alive(pid int) bool {
	state, _, ok := processState(pid)
	return ok && state != 'Z' && state != 'X'
}

// removeSharedMemory removes the System V shared memory segment that a killed
// postmaster leaves. Postgres uses the segment to lock the data directory. The
// seventh line of postmaster.pid names it: "key id" (miscinit.h,
// LOCK_FILE_LINE_SHMEM_KEY). A postmaster that shuts down removes the file and
// the segment itself.
func removeSharedMemory(dataDir string) {
	data, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid")) //nolint:gosec // our own directory
	if err != nil {
		return
	}
	lines := strings.Split(string(data), "\n")
	if len(lines) < 7 {
		return
	}
	fields := strings.Fields(lines[6])
	if len(fields) != 2 {
		return
	}
	if id, err := strconv.Atoi(fields[1]); err == nil {
		var none unsafe.Pointer
		_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), 0 /* IPC_RMID */, uintptr(none))
	}
}
