package pgserver

import (
	"os"
	"syscall"
)

const (
	tmpfsMagic = 0x01021994 // TMPFS_MAGIC of statfs(2)
	enoughRoom = 2 << 30    // bytes: for the WAL of a long test or of a demo that keeps running
)

// scratchParent returns the parent of the data directory: /dev/shm if it has
// enough free memory, else the temporary directory.
func scratchParent() string {
	const shm = "/dev/shm"
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || st.Type != tmpfsMagic || st.Bavail*uint64(st.Bsize) < enoughRoom {
		return temporaryParent()
	}
	probe, err := os.MkdirTemp(shm, "outbox-cdc-probe-")
	if err != nil {
		return temporaryParent()
	}
	_ = os.Remove(probe)
	return shm
}
