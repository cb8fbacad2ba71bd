package decoder

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateFlag = flag.Bool("update", false, "rewrite golden files")

// TestScripts decodes the sessions in testdata/*.txt. Each has its messages, a line of dashes,
// the decoded outputs and a blank line. Lines that start with # are comments.
func TestScripts(t *testing.T) {
	for _, file := range glob(t, "testdata/*.txt") {
		t.Run(baseName(file), func(t *testing.T) {
			compareGolden(t, file, playScript(t, readFile(t, file)))
		})
	}
}

// playScript returns the script with the actual outputs.
func playScript(t *testing.T, script string) string {
	t.Helper()
	var cases []string
	for part := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		input, _, _ := strings.Cut(part, "----\n")
		input = strings.TrimRight(input, "\n") + "\n"
		var messages []message
		for line := range strings.Lines(input) {
			if !strings.HasPrefix(line, "#") {
				messages = append(messages, parseLine(t, line))
			}
		}
		if len(messages) > 0 {
			input += "----\n" + decodeSession(t, messages)
		}
		cases = append(cases, strings.TrimSuffix(input, "\n"))
	}
	return strings.Join(cases, "\n\n") + "\n"
}

// compareGolden compares got with the file. -update writes the file.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *updateFlag {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := readFile(t, file)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s: -want +got:\n%s", file, diff)
	}
}

func glob(tb testing.TB, pattern string) []string {
	tb.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		tb.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

func baseName(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

func readFile(tb testing.TB, file string) string {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
