//go:build unix

package pgserver

import "os"

// temporaryParent returns the temporary directory, or the system's when the
// server's user could not reach that.
func temporaryParent() string {
	dir := os.TempDir()
	if serverUserCanRead(dir) != nil {
		return "/tmp"
	}
	return dir
}
