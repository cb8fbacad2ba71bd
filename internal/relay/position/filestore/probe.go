package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Test tests once whether Open would succeed, without a change of what a relay uses: it writes a file beside that of the Store, or in the
// directory in which Open would create a directory for it, and removes it again. An error wraps [ErrDenied], [sink.ErrFatal] or [ErrFailed],
// as that of Open does.
func (f *Store) Test() error {
	err := f.test()
	if err == nil || errors.Is(err, sink.ErrFatal) {
		return err
	}
	if denied := f.explainDenial(err); denied != nil {
		return denied
	}
	return fmt.Errorf("%w: %s: %w", ErrFailed, f.path, err)
}

func (f *Store) test() error {
	c, err := readFile(f.path)
	if err != nil {
		return err
	}
	for _, name := range []string{f.path + lockSuffix, f.path + newSuffix} {
		existing, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // as in lock
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_ = existing.Close()
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	parent := dir
	for !isThere(parent) && parent != filepath.Dir(parent) {
		parent = filepath.Dir(parent)
	}
	err = writeTemporary(parent, filepath.Base(f.path), data)
	if failed, ok := errors.AsType[*fs.PathError](err); ok && parent != dir {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: failed.Err}
	}
	return err
}

// isThere reports whether a path exists, or nobody knows.
func isThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// writeTemporary writes data to a new file in dir, and removes it.
func writeTemporary(dir, name string, data []byte) error {
	temporary, err := os.CreateTemp(dir, name+".test-*")
	if err != nil {
		return err
	}
	path := temporary.Name()
	err = errors.Join(temporary.Close(), writeSynced(path, data))
	return errors.Join(err, os.Remove(path))
}
