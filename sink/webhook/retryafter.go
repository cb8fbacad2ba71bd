package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxPause is the maximum time that a receiver can ask for. After that, the relay asks it again.
const maxPause = time.Hour

// pauseAfter returns the pause that a response asks for, as seconds or as a date. It is 0 if there is none.
func pauseAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	pause := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		pause = time.Duration(min(seconds, uint64(maxPause/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		pause = at.Sub(now)
	}
	return min(max(pause, 0), maxPause)
}

// pauses are the pauses that receivers have asked for, by destination. A pause holds for all keys of a destination.
type pauses struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// set starts a pause.
func (p *pauses) set(destination string, until, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	for other, t := range p.until { // few receivers ask for a pause at the same time
		if t.Before(now) {
			delete(p.until, other)
		}
	}
	p.until[strings.Clone(destination)] = until
}

// left returns how much of the pause of a destination is left.
func (p *pauses) left(destination string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[destination].Sub(now)
}
