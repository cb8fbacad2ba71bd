package deploy

import (
	"regexp"
	"testing"
)

// Releases and images are made by one compiler.
func TestOneCompiler(t *testing.T) {
	versions := map[string]string{}
	for path, pattern := range map[string]string{
		"../Dockerfile":                    `(?m)^ARG GO_VERSION=(\S+)$`,
		"example/Dockerfile":               `(?m)^ARG GO_VERSION=(\S+)$`,
		"../.github/workflows/release.yml": `go-version: (\S+)`,
	} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
		if m == nil {
			t.Fatalf("%s names no version of Go", path)
		}
		versions[m[1]] = path
	}
	if len(versions) != 1 {
		t.Errorf("they differ: %v", versions)
	}
}
