package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Module is the path of the Go module under test.
const Module = "github.com/outbox-cdc/outbox-cdc"

// built holds the programs that this test binary has built.
var built struct { //nolint:gochecknoglobals // once per test binary is the point
	sync.Mutex
	dir      string
	programs map[string]string // path by package
}

// Binary returns the path of the relay's binary.
func Binary(t *testing.T) string {
	t.Helper()
	return Build(t, "cmd/outbox-cdc")
}

// Build builds the program of a main package of the module, such as examples/orders, and returns its
// path. The file belongs to this test binary, and no other process replaces it.
func Build(t *testing.T, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if at, ok := built.programs[pkg]; ok {
		return at
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "outbox-cdc-test-") //nolint:usetesting // it outlives the test
		Must(t, err)
		built.dir, built.programs = dir, map[string]string{}
	}
	at := filepath.Join(built.dir, path.Base(pkg))
	Must(t, build(t.Context(), pkg, at))
	built.programs[pkg] = at
	return at
}

// build creates the program at the path at. All test binaries of a checkout share a program in the cache. `go build`
// links it again only if it is out of date.
func build(ctx context.Context, pkg, at string) error {
	cache, err := serverproc.CacheDir()
	if err != nil {
		return err
	}
	_, source, _, _ := runtime.Caller(0) // in the checkout
	cached := filepath.Join(cache, "test-"+path.Base(pkg)+strings.ReplaceAll(filepath.Dir(source), string(filepath.Separator), "-"))
	unlock, err := serverproc.Lock(ctx, cached+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", cached, Module+"/"+pkg).CombinedOutput() //nolint:gosec // a package of ours
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	// A process of its own copies it: a file that this one has open for writing may be inherited by a process that another
	// test is starting, and then cannot be executed (ETXTBSY).
	if out, err := exec.CommandContext(ctx, "cp", cached, at).CombinedOutput(); err != nil { //nolint:gosec // paths of ours
		return fmt.Errorf("copy %s: %w\n%s", cached, err, out)
	}
	return nil
}
