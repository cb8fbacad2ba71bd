package filestore

import (
	"sync"
	"time"
)

// A stall says since when, and why, a file cannot be read or written. Its methods may be called from any
// goroutine.
type stall struct {
	mu      sync.Mutex
	waiting int // number of calls that retry
	began   time.Time
	cause   error
}

// since returns the start and the cause of the stall, or zero if there is none.
func (s *stall) since() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began, s.cause
}

// noteFailure notes the first failed attempt of a call, which began at since.
func (s *stall) noteFailure(since time.Time, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	if s.began.IsZero() {
		s.began, s.cause = since, cause
	}
}

// noteEnd notes that a call for which noteFailure was called does not retry any more.
func (s *stall) noteEnd(succeeded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; succeeded || s.waiting == 0 {
		s.began, s.cause = time.Time{}, nil
	}
}
