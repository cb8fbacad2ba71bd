//go:build unix && !linux

package pgserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// childrenOf returns the processes whose parent is pid.
func childrenOf(ctx context.Context, pid int) ([]int, error) {
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var child, parent int
		if _, err := fmt.Sscan(lines.Text(), &child, &parent); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// removeSharedMemory does nothing: the segment of a killed postmaster stays
// until the next boot. Only a Kill without a Restart leaves one.
func removeSharedMemory(string) {}
