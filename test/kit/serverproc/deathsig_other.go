//go:build unix && !linux

package serverproc

import "syscall"

// setParentDeathSignal does nothing: only the shell of the Dir signals the process, a moment later.
func setParentDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
