//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestStateNamesWhoRunsTheBroker(t *testing.T) {
	s := state(filepath.Join(t.TempDir(), "pid"))
	check := func(wantPID int, wantAddr string) {
		t.Helper()
		pid, addr, err := s.read()
		if pid != wantPID || addr != wantAddr || err != nil {
			t.Errorf("read() = %d, %q, %v, want %d, %q", pid, addr, err, wantPID, wantAddr)
		}
	}
	check(0, "")
	c, err := s.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check(os.Getpid(), "")
	if err := c.publish("127.0.0.1:9092"); err != nil {
		t.Fatal(err)
	}
	check(os.Getpid(), "127.0.0.1:9092")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errUp)
	if _, err := s.claim(ctx); !errors.Is(err, errUp) {
		t.Errorf("a second claim: %v", err)
	}
	c.release()
	check(0, "")
	if err := os.WriteFile(string(s), []byte("1 of-a-killed-process\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(0, "")
	if err := down(t.Context(), s); err != nil {
		t.Errorf("down with nothing up: %v", err)
	}
}
