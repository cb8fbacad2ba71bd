package cli

import "runtime/debug"

// heapBesideWindow is what the relay needs beside the sink's window: the reader's batches,
// the request being encoded, and some room for the garbage collector to work in.
const heapBesideWindow = 14 << 20

// limitMemory makes the garbage collector hold the process near what it needs. Without a
// limit it lets the heap grow to twice what is in use, and a full window is most of it. It
// is a soft limit: one very large row passes it for as long as it is in memory. GOMEMLIMIT,
// if set, wins.
func (a *app) limitMemory(window int) {
	if a.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(window) + heapBesideWindow)
	}
}
