package position

import (
	"sync"
	"time"
)

// A Stall says since when, and why, a store that is not at the broker cannot be read or written. Its methods may be called from any
// goroutine.
type Stall struct {
	mu      sync.Mutex
	waiting int // number of calls that retry
	since   time.Time
	cause   error
}

// Since returns the start and the cause of the stall, or zero if there is none.
func (s *Stall) Since() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.cause
}

// begin notes the first failed attempt of a call, which began at since.
func (s *Stall) begin(since time.Time, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	if s.since.IsZero() {
		s.since, s.cause = since, cause
	}
}

// end notes that a call for which begin was called does not retry any more.
func (s *Stall) end(succeeded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; succeeded || s.waiting == 0 {
		s.since, s.cause = time.Time{}, nil
	}
}
