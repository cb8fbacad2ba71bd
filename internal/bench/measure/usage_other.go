//go:build !linux

package measure

import "time"

// Only Linux shows it without further ado.
func usage(int) (Usage, bool) { return Usage{}, false }

// ThreadTime returns 0.
func ThreadTime(int) time.Duration { return 0 }
