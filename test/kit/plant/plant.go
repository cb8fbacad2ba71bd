// Package plant puts bugs into the source code of the relay, for tests that must find them. The working tree does not
// change: the compiler reads the edited files in place of the others.
package plant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the root directory of the module, relative to the packages below test.
const root = "../.."

// An Edit replaces a text that occurs exactly once in a file.
type Edit struct {
	File     string // from the root of the module
	From, To string
}

// In returns an Edit of a file.
func In(file, from, to string) Edit { return Edit{file, from, to} }

// RequireFit fails the test if a text that the edits of a mistake replace does not occur exactly once.
func RequireFit(t *testing.T, mistake string, edits []Edit) {
	t.Helper()
	if _, err := apply(edits); err != nil {
		t.Errorf("%s: %v", mistake, err)
	}
}

// apply returns the edited text of each file that has edits. It returns an error if a text does not occur exactly once.
func apply(edits []Edit) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range edits {
		text, ok := files[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.From); n != 1 {
			return nil, fmt.Errorf("%s has this %d times:\n%s", e.File, n, e.From)
		}
		files[e.File] = strings.Replace(text, e.From, e.To, 1)
	}
	return files, nil
}

// Overlay writes the edited files, and returns the path of a file for the flag -overlay of go build and go test.
func Overlay(t *testing.T, edits []Edit) string {
	t.Helper()
	edited, err := apply(edits)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := make(map[string]string)
	for file, text := range edited {
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		files[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(files[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
