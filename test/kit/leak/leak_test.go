package leak

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A goroutine is waited for, and one that stays is an error that shows where it is.
func TestFind(t *testing.T) {
	others := goleak.IgnoreCurrent()
	stay := make(chan struct{})
	go func() { <-stay }()
	if err := find(0, others); err == nil || !strings.Contains(err.Error(), "TestFind") {
		t.Errorf("a goroutine that stays: %v", err)
	}
	time.AfterFunc(800*time.Millisecond, func() { close(stay) }) // longer than goleak waits
	if err := find(time.Hour, others); err != nil {
		t.Errorf("a goroutine that ends: %v", err)
	}
}
