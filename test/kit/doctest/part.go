package doctest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CheckPart fails the test unless the page at path has want between the comments <!-- name:begin --> and
// <!-- name:end -->. If update is true, it writes want there instead.
func CheckPart(tb testing.TB, path, name, want string, update bool) {
	tb.Helper()
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	page, err := os.ReadFile(path) //nolint:gosec // a test's
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		tb.Fatalf("%s lacks %q … %q", path, begin, end)
	}
	if update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // it is read by everybody
			tb.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s: run this test with -update (-want +got):\n%s", path, diff)
	}
}
