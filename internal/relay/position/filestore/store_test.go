package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
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

func (files) OpenPositions(ctx context.Context, path, name string) (sink.PositionStore, error) {
	s := newStore(path, name)
	return s, s.Open(ctx)
}

func newStore(path, name string) *Store { return New(path, name, slog.New(slog.DiscardHandler)) }

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s := newStore(filepath.Join(dir, "position"), "relay")
	if err := s.Open(sinktest.Context(t)); err != nil {
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
	b := newStore(a.path, "another")
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{a, b} {
		if err := s.Post(t.Context(), "w", []byte(s.name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*Store{a, b} {
		if values, err := s.Read(t.Context()); err != nil || len(values) != 1 || string(values[0].Value) != s.name {
			t.Errorf("the values of %s are %v, %v", s.name, values, err)
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
	if err := os.WriteFile(s.path+".new", []byte(`{"version":1,"val`), 0o600); err != nil {
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
		if err := os.WriteFile(s.path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context()); !errors.Is(err, sink.ErrFatal) || !strings.Contains(err.Error(), s.path) {
			t.Errorf("Read of %q: %v", damaged, err)
		}
		if err := s.Post(t.Context(), "a", []byte("1")); !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Write to %q: %v", damaged, err)
		}
		if err := s.Open(t.Context()); !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Open of %q: %v", damaged, err)
		}
	}
}

// A Write that cannot succeed is retried until its context ends, and the next one succeeds when the directory is back.
func TestWriteIsRetried(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "positions")
	s := openIn(t, dir)
	log := new(strings.Builder)
	s.log = slog.New(slog.NewTextHandler(log, nil))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	posted := make(chan error)
	go func() { posted <- s.Post(ctx, "a", []byte("1")) }()
	wait.For(t, "the stall", func() bool {
		since, cause := s.Stall()
		return !since.IsZero() && errors.Is(cause, fs.ErrNotExist)
	})
	cancel(over)
	if err := <-posted; !errors.Is(err, over) || !errors.Is(err, ErrFailed) {
		t.Errorf("Post that was given up: %v", err)
	}
	go func() { posted <- s.Post(t.Context(), "a", []byte("2")) }()
	wait.For(t, "the stall", func() bool { since, _ := s.Stall(); return !since.IsZero() })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := <-posted; err != nil {
		t.Error(err)
	}
	if since, cause := s.Stall(); !since.IsZero() || cause != nil {
		t.Errorf("a stall since %v after the retry has succeeded: %v", since, cause)
	}
	if strings.Count(log.String(), "retrying") != 2 || strings.Count(log.String(), "position file read or written again") != 1 {
		t.Error(log)
	}
}

// A directory that may not be written is an error at once.
func TestDenied(t *testing.T) {
	dir := t.TempDir()
	err := newStore(filepath.Join(dir, "position"), "a").explainDenial(fmt.Errorf("open: %w", os.ErrPermission))
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "the directory "+dir+" does not let "+account()) {
		t.Errorf("permission denied: %v", err)
	}
	if err := newStore(dir, "a").Open(t.Context()); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of a directory: %v", err)
	}
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newStore(filepath.Join(plain, "position"), "a").Open(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "file") {
		t.Errorf("Open in a file: %v", err)
	}
}

// Test finds why Open would fail, and leaves nothing behind.
func TestTest(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(path string) error
		want    error
		says    string
	}{
		"nothing there":        {func(string) error { return nil }, nil, ""},
		"directory is missing": {func(path string) error { return os.Remove(filepath.Dir(path)) }, nil, ""},
		"in use":               {func(path string) error { return newStore(path, "relay").Post(t.Context(), "a", []byte("1")) }, nil, ""},
		"is a directory":       {func(path string) error { return os.Mkdir(path, 0o700) }, ErrDenied, "is a directory"},
		"in a file": {func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600))
		}, ErrFailed, "not a directory"},
		"lock cannot be opened": {func(path string) error { return os.Mkdir(path+".lock", 0o700) }, ErrDenied, "positions.lock"},
		"damaged":               {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, sink.ErrFatal, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "dir", "positions")
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), tc.prepare(path)); err != nil {
				t.Fatal(err)
			}
			before := tree(t, root)
			if err := newStore(path, "relay").Test(); !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Error(err)
			}
			if after := tree(t, root); after != before {
				t.Errorf("there was %s, and is %s", before, after)
			}
		})
	}
}

// tree returns the names, modes and contents of what is below root.
func tree(t *testing.T, root string) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			files = append(files, path)
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, fmt.Sprintf("%s %s: %q", path, info.Mode(), data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(files, ", ")
}

// Read changes nothing: what is missing is not created, and a store that another user's relay writes is not locked.
func TestReadCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	missing := newStore(filepath.Join(dir, "new", "position"), "relay")
	if values, err := missing.Read(t.Context()); err != nil || len(values) > 0 {
		t.Errorf("Read of a missing file: %v, %v", values, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("Read has created %v, %v", entries, err)
	}
	s := openIn(t, dir)
	if err := s.Post(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), s.path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if values, err := newStore(s.path, "relay").Read(t.Context()); err != nil || len(values) != 1 {
		t.Errorf("Read of a locked file: %v, %v", values, err)
	}
}
