// Package doctest compares pages of the documentation with the code. [CheckPart] compares a generated part of
// a page with the text that a test generates. A [Checker] type-checks the Go code of a page. [FollowedPages] names the pages that
// TestOperations follows.
//
//	c := doctest.NewChecker(t, "context", "github.com/outbox-cdc/outbox-cdc/outbox")
//	err := c.Check(`func f(ctx context.Context) { … }`)
//	err = c.CheckPage(page, "(ctx context.Context) error")
//
// The package does not run the code.
package doctest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// A Checker type-checks code that imports a fixed list of packages.
type Checker struct {
	fset     *token.FileSet
	importer types.Importer
	header   string // package clause and imports
}

// NewChecker returns a Checker for code that imports packages by their own names. It builds the packages as
// `go build` in the test's directory does.
func NewChecker(tb testing.TB, packages ...string) *Checker {
	tb.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Name}} {{.Export}}"}, packages...)
	out, err := exec.CommandContext(tb.Context(), "go", args...).Output() //nolint:gosec // a test's
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		tb.Fatalf("go list: %v", err)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			exports[f[0]] = f[2]
		}
	}
	c := &Checker{fset: token.NewFileSet(), header: "package doctest; import ("}
	for _, p := range packages {
		c.header += fmt.Sprintf("%q; ", p)
	}
	c.header += ")\n"
	c.importer = importer.ForCompiler(c.fset, "gc", func(p string) (io.ReadCloser, error) {
		file, ok := exports[p]
		if !ok {
			return nil, fmt.Errorf("package %s is none of those of the snippet", path.Base(p))
		}
		return os.Open(file) //nolint:gosec // a test's
	})
	return c
}

// Check type-checks declarations and returns the first error. It ignores unused imports and variables.
func (c *Checker) Check(code string) error {
	file, err := parser.ParseFile(c.fset, "snippet.go", c.header+code, 0)
	if err != nil {
		return err
	}
	var first error
	cfg := types.Config{Importer: c.importer, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); first == nil && (!ok || !e.Soft) {
			first = err
		}
	}}
	_, _ = cfg.Check("snippet", c.fset, []*ast.File{file}, nil) // reported above
	return first
}

// CheckPage checks all Go code blocks (```go) of a page together. A block consists of declarations, or of
// statements of a function with the given signature. Instead of a file, errors name the first line of the
// block.
func (c *Checker) CheckPage(page, signature string) error {
	blocks := blocks(page)
	if len(blocks) == 0 {
		return errors.New("the page has no Go code")
	}
	var all strings.Builder
	for i, block := range blocks {
		if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+block, 0); err != nil {
			blocks[i] = "func _" + signature + " {\n" + block + "\npanic(\"the page goes on\")\n}"
		}
		first, _, _ := strings.Cut(strings.TrimSpace(block), "\n")
		fmt.Fprintf(&all, "/*line %q:1:1*/ %s\n", strings.NewReplacer(":", " ", "*/", "").Replace(first), blocks[i])
	}
	return c.Check(all.String())
}

func blocks(page string) []string {
	var all []string
	for {
		_, rest, ok := strings.Cut(page, "```go\n")
		if !ok {
			return all
		}
		block, after, _ := strings.Cut(rest, "```")
		all, page = append(all, block), after
	}
}
