package rig

import (
	"bytes"
	"strconv"
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

// Logged waits until the relay's log contains text.
func (r *Process) Logged(t *testing.T, text string) {
	t.Helper()
	wait.For(t, "the relay to log "+strconv.Quote(text), func() bool {
		return strings.Contains(r.Stderr.String(), text)
	})
}

// Times counts the occurrences of text in the relay's log.
func (r *Process) Times(text string) int { return strings.Count(r.Stderr.String(), text) }

// LoggedTimes waits until the relay's log contains text n times.
func (r *Process) LoggedTimes(t *testing.T, text string, n int) {
	t.Helper()
	wait.For(t, "the relay to log again "+text, func() bool { return r.Times(text) >= n })
}
