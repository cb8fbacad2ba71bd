package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The index has every page, and every link from one file of the repository to another leads
// somewhere.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	index, err := os.ReadFile("../docs/README.md")
	must(t, err)
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	links := 0
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../bench/README.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			path, fragment, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", page, link[1], err)
			} else if fragment != "" && !hasAnchor(t, to, fragment) {
				t.Errorf("%s: %s has no such heading", page, link[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links", links)
	}
}

func hasAnchor(t *testing.T, page, fragment string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		if anchor(heading[1]) == fragment {
			return true
		}
	}
	return false
}
