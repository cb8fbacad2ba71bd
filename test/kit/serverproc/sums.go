package serverproc

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Sums are the SHA-256 sums that downloads must have, in the format of sha256sum(1): one line per file.
type Sums string

// Verify returns an error unless sum is the pinned sum of the file called name.
func (s Sums) Verify(name string, sum []byte) error {
	for line := range strings.Lines(string(s)) {
		want, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		switch {
		case file != name:
		case want != hex.EncodeToString(sum):
			return fmt.Errorf("%s is not the file that this repository pins: its SHA-256 is %x, and must be %s", name, sum, want)
		default:
			return nil
		}
	}
	return fmt.Errorf("this repository pins no SHA-256 for %s: the file is not used (it has %x)", name, sum)
}
