package positionfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Config says where the values are.
type Config struct {
	// Path is the file. Open creates it and its directory. While the file is changed, the file with the suffix
	// .lock is locked.
	Path string

	// Name is the name of the relay whose values they are. A file may have those of several.
	Name string

	Log *slog.Logger

	// Attempt calls f and notes its error, for [sink.Stat]. Nil: f is called.
	Attempt func(ctx context.Context, f func(context.Context) error) error
}

// A Store is a [sink.PositionStore] in a file. Several Stores, also of several processes of one host, may use the file.
type Store struct {
	cfg     Config
	writing sync.Mutex
}

// Open opens the file of cfg and tests that it can be written. An error wraps [sink.ErrAccess] if we may not write there,
// and [sink.ErrFatal] if the file is damaged. Open retries any other error until ctx ends.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Attempt == nil {
		cfg.Attempt = func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	}
	s := &Store{cfg: cfg}
	return s, s.retry(ctx, denied, func(ctx context.Context) error {
		if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
			return err
		}
		return s.change(ctx, func(*relay) error { return nil })
	})
}

// Read implements [sink.PositionStore].
func (s *Store) Read(ctx context.Context) ([]sink.StoredValue, error) {
	var stored []sink.StoredValue
	err := s.retry(ctx, denied, func(context.Context) error {
		c, err := readFile(s.cfg.Path)
		if err != nil {
			return err
		}
		stored = stored[:0]
		for _, v := range c.of(s.cfg.Name).Values {
			stored = append(stored, sink.StoredValue{Key: v.Key, Value: v.Value, Place: "file " + s.cfg.Path})
		}
		return nil
	})
	return stored, err
}

// Post implements [sink.PositionStore]. The value is on disk when Post has returned nil.
func (s *Store) Post(ctx context.Context, key string, to []byte) error {
	return s.update(ctx, func(r *relay) error {
		r.replace(key, to)
		return nil
	})
}

// An owner is a [sink.Owner] of the values of a relay.
type owner struct {
	store *Store
	id    string
}

// Own implements [sink.PositionStore].
func (s *Store) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{s, uuid.NewString()}
	return o, s.update(ctx, func(r *relay) error {
		r.Owner = o.id
		return nil
	})
}

// Write implements [sink.Owner]. The value is on disk when Write has returned nil.
func (o *owner) Write(ctx context.Context, key string, to []byte) error {
	return o.store.update(ctx, func(r *relay) error {
		if r.Owner != o.id {
			return fmt.Errorf("%w: position file %s has another owner", sink.ErrSuperseded, o.store.cfg.Path)
		}
		r.replace(key, to)
		return nil
	})
}

// update changes the values of the relay.
func (s *Store) update(ctx context.Context, to func(*relay) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.retry(ctx, nil, func(ctx context.Context) error { return s.change(ctx, to) })
}

// CheckOrder implements [sink.PositionStore]. A file orders no writers.
func (s *Store) CheckOrder(context.Context) error { return errors.ErrUnsupported }

// change has to change the values of the relay, while no other process does.
func (s *Store) change(ctx context.Context, to func(*relay) error) error {
	unlock, err := lock(ctx, s.cfg.Path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	c, err := readFile(s.cfg.Path)
	if err != nil {
		return err
	}
	if err := to(c.of(s.cfg.Name)); err != nil {
		return err
	}
	return writeFile(s.cfg.Path, c)
}

const (
	backoffBase = 20 * time.Millisecond
	backoffMax  = 2 * time.Second
)

// denied returns an error that wraps sink.ErrAccess if we may not read or write the file, or if it is a directory, or
// nil.
func denied(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: position file: %w. Let the relay read and write the directory", sink.ErrAccess, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: position file: %w. Name a file in it", sink.ErrAccess, err)
	}
	return nil
}

// retry calls f until it succeeds, or final returns an error for that of f, or ctx ends. It logs one warning. A final of
// nil has no error.
func (s *Store) retry(ctx context.Context, final func(error) error, f func(context.Context) error) error {
	for n := 0; ; n++ {
		err := s.cfg.Attempt(ctx, f)
		if err == nil || errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrSuperseded) {
			return err
		}
		if final != nil {
			if ended := final(err); ended != nil {
				return ended
			}
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("position file %s: %w (last cause: %w)", s.cfg.Path, context.Cause(ctx), err)
		case n == 0:
			s.cfg.Log.WarnContext(ctx, "position file not read or written, retrying", slog.String("file", s.cfg.Path), slog.Any("err", err))
		}
		wait := time.Duration(rand.Float64() * float64(min(backoffMax, backoffBase<<min(n, 10))))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
