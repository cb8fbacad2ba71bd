package check

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/rhysd/actionlint"
)

// actionlint accepts the workflows.
func TestWorkflows(t *testing.T) {
	paths, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no workflows", err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mistakes, err := linter.LintFiles(paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Error(m)
	}
}
