package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Store is a [sink.PositionStore] in a file. Several of them, also of several processes of one host, may use the same one, and it may
// have the values of several relays. While it is changed, the file with lockSuffix is locked. Its methods may be called from any
// goroutine, and Read also before Open.
type Store struct {
	path  string
	name  string // of the relay
	stall stall
	log   *slog.Logger

	writing sync.Mutex
}

// The files beside that of a Store.
const (
	lockSuffix = ".lock"
	newSuffix  = ".new" // has the next contents until it is renamed
)

var (
	// ErrDenied says that the operating system does not let this process use the file.
	ErrDenied = errors.New("no access to the position file")

	// ErrFailed says that the file could not be read or written before the context ended, for example because its disk is full.
	ErrFailed = errors.New("the position file cannot be read or written")
)

// New returns the Store of the relay called name in the file at path. It does not contact the file.
func New(path, name string, log *slog.Logger) *Store { return &Store{path: path, name: name, log: log} }

// Open tests that the file can be written, and creates it and its directory. An error wraps [ErrDenied] if we may not write
// there, and [sink.ErrFatal] if the file is damaged. Open retries any other error until ctx ends; the error then wraps [ErrFailed].
func (f *Store) Open(ctx context.Context) error {
	return f.retry(ctx, f.explainDenial, func(ctx context.Context) error {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
			return err
		}
		return f.change(ctx, func(*relay) error { return nil })
	})
}

// Stall returns since when, and why, the file cannot be read or written, or zero.
func (f *Store) Stall() (since time.Time, cause error) { return f.stall.since() }

// Read implements [sink.PositionStore].
func (f *Store) Read(ctx context.Context) ([]sink.StoredValue, error) {
	var stored []sink.StoredValue
	err := f.retry(ctx, f.explainDenial, func(context.Context) error {
		c, err := readFile(f.path)
		if err != nil {
			return err
		}
		stored = c.stored(f.name, "file "+f.path)
		return nil
	})
	return stored, err
}

// Post implements [sink.PositionStore]. The value is on disk when Post has returned nil.
func (f *Store) Post(ctx context.Context, key string, to []byte) error {
	return f.update(ctx, func(r *relay) error {
		r.replace(key, to)
		return nil
	})
}

// An owner is a [sink.Owner] of the values of a relay.
type owner struct {
	file *Store
	id   string
}

// Own implements [sink.PositionStore].
func (f *Store) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{f, uuid.NewString()}
	return o, f.update(ctx, func(r *relay) error {
		r.Owner = o.id
		return nil
	})
}

// Write implements [sink.Owner]. The value is on disk when Write has returned nil.
func (o *owner) Write(ctx context.Context, key string, to []byte) error {
	return o.file.update(ctx, func(r *relay) error {
		if r.Owner != o.id {
			return fmt.Errorf("%w: position file %s has another owner", sink.ErrSuperseded, o.file.path)
		}
		r.replace(key, to)
		return nil
	})
}

// update changes the values of the relay.
func (f *Store) update(ctx context.Context, to func(*relay) error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.retry(ctx, nil, func(ctx context.Context) error { return f.change(ctx, to) })
}

// CheckOrder implements [sink.PositionStore]. A file orders no writers.
func (f *Store) CheckOrder(context.Context) error { return errors.ErrUnsupported }

// change has to change the values of the relay, while no other process does.
func (f *Store) change(ctx context.Context, to func(*relay) error) error {
	unlock, err := lock(ctx, f.path+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := readFile(f.path)
	if err != nil {
		return err
	}
	if err := to(c.of(f.name)); err != nil {
		return err
	}
	return writeFile(f.path, c)
}

const (
	backoffBase = 20 * time.Millisecond
	backoffMax  = 2 * time.Second

	// attemptTimeout limits an attempt, so that a lock that another process holds is reported.
	attemptTimeout = 10 * time.Second
)

// explainDenial returns an error that wraps ErrDenied if we may not read or write the file, or if it is a directory, or nil.
func (f *Store) explainDenial(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the directory %s does not let %s read and write in it: %w", ErrDenied, filepath.Dir(f.path), account(), err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: position.file is a directory, and must be a file in it: %w", ErrDenied, err)
	}
	return nil
}

// account names the operating-system user of this process.
func account() string {
	if u, err := user.Current(); err == nil {
		return fmt.Sprintf("operating-system user %q", u.Username)
	}
	return fmt.Sprintf("operating-system user %d", os.Getuid()) // as in a container without /etc/passwd
}

// endStall notes that a call which had to retry has ended.
func (f *Store) endStall(ctx context.Context, succeeded bool) {
	f.stall.noteEnd(succeeded)
	if succeeded {
		f.log.InfoContext(ctx, "position file read or written again", slog.String("file", f.path))
	}
}

// retry calls use until it succeeds, or final returns an error for that of use, or ctx ends. It logs one warning, and the end of it. A final of
// nil has no error.
func (f *Store) retry(ctx context.Context, final func(error) error, use func(context.Context) error) (err error) {
	for n := 0; ; n++ {
		began := time.Now()
		if err = attempt(ctx, use); err == nil || errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrSuperseded) {
			return err
		}
		if final != nil {
			if ended := final(err); ended != nil {
				return ended
			}
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %s: %w (last cause: %w)", ErrFailed, f.path, context.Cause(ctx), err)
		case n == 0:
			f.stall.noteFailure(began, err)
			defer func() { f.endStall(ctx, err == nil) }()
			f.log.WarnContext(ctx, "position file not read or written, retrying", slog.String("file", f.path), slog.Any("err", err))
		}
		wait := time.Duration(rand.Float64() * float64(min(backoffMax, backoffBase<<min(n, 10))))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func attempt(ctx context.Context, use func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return use(ctx)
}
