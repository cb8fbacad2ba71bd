//go:build unix

package measure

import (
	"os/exec"
	"syscall"
	"time"
)

// endedBy reports whether sig ended the process: directly, or with status 128 + sig, as programs that handle the
// signal, and shells, exit.
func endedBy(exit *exec.ExitError, sig syscall.Signal) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == sig || status.ExitStatus() == 128+int(sig))
}

// ownCPU returns the user and system time of this process.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
