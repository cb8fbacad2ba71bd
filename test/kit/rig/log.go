package rig

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Log collects the output of a process. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p. It never fails.
func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the output so far.
func (b *Log) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Tail returns the last lines of a text.
func Tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Logged waits until the relay's log contains text. It fails the test if the relay exits without that.
func (r *Process) Logged(t *testing.T, text string) {
	t.Helper()
	r.LoggedTimes(t, text, 1)
}

// Times counts the occurrences of text in the relay's log.
func (r *Process) Times(text string) int { return strings.Count(r.Stderr.String(), text) }

// LoggedTimes is like [Process.Logged], for text that the log contains n times.
func (r *Process) LoggedTimes(t *testing.T, text string, n int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("the relay to log %q %d times", text, n), func() bool {
		ended := r.Ended() // before the log is read, which is then complete
		logged := r.Times(text) >= n
		if ended && !logged {
			t.Fatalf("the relay has exited without logging %q %d times", text, n)
		}
		return logged
	})
}
