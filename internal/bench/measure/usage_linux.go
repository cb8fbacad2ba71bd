package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is USER_HZ, the unit of the times in /proc/PID/stat: 100 a second on every architecture that
// Go runs on (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
const tick = 10 * time.Millisecond

// usage reads what a running process and its descendants use. CPU is exact to a tick and contains
// children that have ended. It reports false where there is no such process.
func usage(pid int) (Usage, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, false
	}
	u := Usage{CPU: cpuTime(stat)}
	// Not rusage's maximum: that one survives exec and begins with ours.
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, false
	}
	u.RSS, u.PeakRSS = memory(status, "VmRSS:"), memory(status, "VmHWM:")
	for _, child := range children(pid) {
		if c, ok := usage(child); ok {
			u.CPU += c.CPU
			u.RSS += c.RSS
			u.PeakRSS = max(u.PeakRSS, u.RSS)
		}
	}
	return u, true
}

// cpuTime adds utime, stime, cutime and cstime.
func cpuTime(stat []byte) time.Duration {
	const utime = 14 - 3 // fields are counted from 1, and the third follows the name in parentheses
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks int64
	for _, field := range fields[utime : utime+4] {
		n, _ := strconv.ParseInt(string(field), 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// memory returns the bytes that a line of /proc/PID/status gives in kB; 0 without the line.
func memory(status []byte, name string) int64 {
	_, rest, _ := strings.Cut(string(status), name)
	line, _, _ := strings.Cut(rest, "kB")
	n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return n << 10
}

// children returns the processes that any thread of pid has started; none where the kernel does
// not list them.
func children(pid int) []int {
	var all []int
	for _, file := range glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) {
		list, _ := os.ReadFile(file) //nolint:gosec // a path of ours; the thread may have ended
		for field := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// ThreadTime adds up the time that the living threads of pid have run, to the nanosecond: for spans
// in which a tick is too coarse. 0 where the kernel does not say.
func ThreadTime(pid int) time.Duration {
	var sum int64
	for _, file := range glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) {
		line, _ := os.ReadFile(file) //nolint:gosec // a path of ours; the thread may have ended
		running, _, _ := strings.Cut(string(line), " ")
		n, _ := strconv.ParseInt(running, 10, 64)
		sum += n
	}
	return time.Duration(sum)
}

func glob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	if err != nil {
		panic(err) // a malformed pattern of ours
	}
	return files
}
