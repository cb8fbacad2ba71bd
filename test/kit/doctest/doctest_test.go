package doctest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

func says(t *testing.T, err error, code, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", code, err, want)
	}
}

func TestCheck(t *testing.T) {
	c := doctest.NewChecker(t, "context", "errors")
	for code, want := range map[string]string{
		"var e = errors.New(``)": "",
		"func f(ctx context.Context) error { unused := 1; return ctx.Err() }": "",
		"func f(ctx context.Context) error { return ctx }":                    "cannot use ctx",
		"func f() { undefined() }":                                            "undefined: undefined",
		"var _ = strings.Cut":                                                 "undefined: strings",
		"func f() error { return }":                                           "not enough return values",
		"func":                                                                "expected",
	} {
		says(t, c.Check(code), code, want)
	}
}

func TestCheckPage(t *testing.T) {
	c := doctest.NewChecker(t, "context", "errors")
	for page, want := range map[string]string{
		"text": "has no Go code",
		"```go\ntype T struct{}\n```\n```sh\nnot go\n```\n```go\nvar t T\nreturn errors.Join(ctx.Err())\n```\n": "",
		"```go\nreturn nil\n```\n```go\n// here it is\nreturn T{}\n```\n":                                       "here it is",
	} {
		says(t, c.CheckPage(page, "(ctx context.Context) error"), page, want)
	}
}

// An outcome records whether a test failed.
type outcome struct {
	testing.TB
	failed bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Errorf(string, ...any) { o.failed = true }

func TestCheckPart(t *testing.T) {
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
		doctest.CheckPart(o, path, "keys", step.want, step.update)
		if o.failed != step.fails {
			t.Errorf("%+v: failed %v", step, o.failed)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil || string(page) != "before\n<!-- keys:begin -->\nnew\n<!-- keys:end -->\nafter\n" {
		t.Errorf("%q, %v", page, err)
	}
}
