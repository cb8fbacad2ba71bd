package snippet_test

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/snippet"
)

func says(t *testing.T, err error, code, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", code, err, want)
	}
}

func TestCheck(t *testing.T) {
	c := snippet.New(t, "context", "errors")
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
	c := snippet.New(t, "context", "errors")
	for page, want := range map[string]string{
		"text": "has no Go code",
		"```go\ntype T struct{}\n```\n```sh\nnot go\n```\n```go\nvar t T\nreturn errors.Join(ctx.Err())\n```\n": "",
		"```go\nreturn nil\n```\n```go\n// here it is\nreturn T{}\n```\n":                                       "here it is",
	} {
		says(t, c.CheckPage(page, "(ctx context.Context) error"), page, want)
	}
}
