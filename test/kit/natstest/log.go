package natstest

import (
	"fmt"
	"strings"
	"sync"
)

// errorLog keeps what a server logs as an error. It implements the Logger of the server.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *errorLog) Errorf(format string, v ...any) { l.add(format, v...) }
func (l *errorLog) Fatalf(format string, v ...any) { l.add(format, v...) }
func (l *errorLog) Warnf(format string, v ...any)  { l.add(format, v...) }
func (*errorLog) Noticef(string, ...any)           {}
func (*errorLog) Debugf(string, ...any)            {}
func (*errorLog) Tracef(string, ...any)            {}

// maxLines limits the lines that are kept.
const maxLines = 20

func (l *errorLog) add(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) < maxLines {
		l.lines = append(l.lines, fmt.Sprintf(format, v...))
	}
}

// String returns what was logged.
func (l *errorLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "; ")
}
