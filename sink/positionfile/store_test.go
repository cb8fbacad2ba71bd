package positionfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
)

// TestContract runs the tests of position stores of package sinktest.
func TestContract(t *testing.T) { sinktest.RunPositions(t, subject{}) }

// A subject has position stores and nothing else.
type subject struct{ sinktest.Subject }

func (subject) Broker(int) sink.Broker { return broker{} }

func (subject) Store(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "new", "positions")
}

type broker struct{ sink.Broker }

func (broker) Open(context.Context, *slog.Logger) (sink.Sink, error) { return files{}, nil }

type files struct{ sink.Sink }

func (files) Close() error { return nil }

func (files) OpenPositions(ctx context.Context, store, name string) (sink.PositionStore, error) {
	return Open(ctx, Config{Path: store, Name: name, Log: slog.New(slog.DiscardHandler)})
}

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(sinktest.Context(t), Config{Path: filepath.Join(dir, "position"), Name: "relay", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Writers that use the same file do not lose each other's values.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for i := range 4 {
		s := openIn(t, dir)
		writers.Go(func() {
			for n := range 20 {
				if err := s.Post(t.Context(), fmt.Sprint("writer", i), fmt.Append(nil, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	values, err := openIn(t, dir).Read(t.Context())
	if err != nil || len(values) != 4 {
		t.Fatalf("%d values, %v", len(values), err)
	}
	for _, v := range values {
		if string(v.Value) != "19" || !strings.Contains(v.Place, dir) {
			t.Errorf("value %q of %s in %s", v.Value, v.Key, v.Place)
		}
	}
}

// A file may have the values of several relays.
func TestSeveralRelays(t *testing.T) {
	a := openIn(t, t.TempDir())
	cfg := a.cfg
	cfg.Name = "another"
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{a, b} {
		if err := s.Post(t.Context(), "w", []byte(s.cfg.Name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*Store{a, b} {
		if values, err := s.Read(t.Context()); err != nil || len(values) != 1 || string(values[0].Value) != s.cfg.Name {
			t.Errorf("the values of %s are %v, %v", s.cfg.Name, values, err)
		}
	}
}

// A file that a crash has left half written is not read: it was never renamed.
func TestUnfinishedFile(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	if err := s.Post(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.cfg.Path+".new", []byte(`{"version":1,"val`), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	if err := s.Post(t.Context(), "b", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if values, err := s.Read(t.Context()); err != nil || len(values) != 2 {
		t.Errorf("%v, %v", values, err)
	}
}

// A damaged file is an error, not a start without a position.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	for _, damaged := range []string{"", "{", `{"version":1}`, `{"version":2,"relays":{}}`} {
		if err := os.WriteFile(s.cfg.Path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context()); !errors.Is(err, sink.ErrFatal) || !strings.Contains(err.Error(), s.cfg.Path) {
			t.Errorf("Read of %q: %v", damaged, err)
		}
		if err := s.Post(t.Context(), "a", []byte("1")); !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Write to %q: %v", damaged, err)
		}
		if _, err := Open(t.Context(), s.cfg); !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Open of %q: %v", damaged, err)
		}
	}
}

// A Write that cannot succeed is retried until its context ends, and the next one succeeds when the directory is back.
func TestWriteIsRetried(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "positions")
	s := openIn(t, dir)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	attempts := 0
	s.cfg.Attempt = func(ctx context.Context, f func(context.Context) error) error {
		if attempts++; attempts == 3 {
			cancel(over)
		}
		return f(ctx)
	}
	if err := s.Post(ctx, "a", []byte("1")); !errors.Is(err, over) || attempts != 3 {
		t.Errorf("Write: %v after %d attempts", err, attempts)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Post(t.Context(), "a", []byte("2")); err != nil {
		t.Error(err)
	}
}

// A directory that may not be written is an error at once.
func TestDenied(t *testing.T) {
	if err := denied(fmt.Errorf("open: %w", os.ErrPermission)); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("permission denied: %v", err)
	}
	dir := t.TempDir()
	if _, err := Open(t.Context(), Config{Path: dir, Name: "a", Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of a directory: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Config{Path: filepath.Join(file, "position"), Name: "a", Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "file") {
		t.Errorf("Open in a file: %v", err)
	}
}
