package docpart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/docpart"
)

// An outcome notes whether a test failed.
type outcome struct {
	testing.TB
	failed bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Errorf(string, ...any) { o.failed = true }

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n<!-- keys:begin -->\nold\n<!-- keys:end -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		want   string
		update bool
		fails  bool
	}{{"old\n", false, false}, {"new\n", false, true}, {"new\n", true, false}, {"new\n", false, false}, {"old\n", false, true}} {
		o := &outcome{TB: t}
		docpart.Check(o, path, "keys", step.want, step.update)
		if o.failed != step.fails {
			t.Errorf("%+v: failed %v", step, o.failed)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil || string(page) != "before\n<!-- keys:begin -->\nnew\n<!-- keys:end -->\nafter\n" {
		t.Errorf("%q, %v", page, err)
	}
}
