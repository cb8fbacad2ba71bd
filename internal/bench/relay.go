package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// errNoRelay says that there is no relay to measure.
var errNoRelay = errors.New("no outbox-cdc found: there is none beside outbox-cdc-bench or in PATH, and this directory is not in its source tree; set it with --relay")

// module is the module path of the source tree.
const module = "github.com/outbox-cdc/outbox-cdc"

// findRelay returns the path of the relay to measure: the one beside this program, or a build of the source tree
// of the working directory (in scratch), or the one in PATH.
func findRelay(ctx context.Context, scratch string) (string, error) {
	name := relayName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	if tree := sourceTree(ctx); tree != "" {
		path := filepath.Join(scratch, name)
		return path, build(ctx, tree, path)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errNoRelay
	}
	return path, nil
}

// sourceTree returns the root of the relay's source tree if the working directory is in it.
func sourceTree(ctx context.Context) string {
	path, dir, _ := strings.Cut(output(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}"), " ")
	if path != module {
		return ""
	}
	return dir
}

// build builds the relay of a source tree, like make build.
func build(ctx context.Context, tree, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/outbox-cdc") //nolint:gosec // a path of ours
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return nil
}
