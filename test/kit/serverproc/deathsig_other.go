//go:build unix && !linux

package serverproc

import "syscall"

// The shell beside the directory does it alone, a moment later.
func setParentDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
