package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartup gives back the pages of the binary that the start has touched: initialising what
// is linked in, for every verb, reads half of its text and tables, and the kernel maps what lies
// around each page as well. They count as resident as long as the process lives. What is still
// needed is mapped again from the page cache when it is touched (madvise(2), MADV_DONTNEED on a
// private mapping of a file that is not written to). It costs what those page faults cost, once,
// and if it cannot be done nothing is lost.
func releaseStartup() {
	binary, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var begin, end uintptr
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &begin, &end, &rights); err != nil {
			continue
		}
		if strings.HasPrefix(rights, "r") && !strings.Contains(rights, "w") && strings.HasSuffix(lines.Text(), " "+binary) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED)
		}
	}
}
