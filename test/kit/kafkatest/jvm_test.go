package kafkatest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// verifyJars rejects a jar whose sum differs, and a jar whose sum is not pinned.
func TestJarsAreVerified(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pom.xml", "")
	write("a.jar", "a")
	write("b.jar", "b")
	sums := serverproc.Sums(fmt.Sprintf("%x  a.jar\n%x  b.jar\n", sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))))
	if err := verifyJars(dir, sums); err != nil {
		t.Error(err)
	}
	write("b.jar", "changed")
	write("c.jar", "c")
	err := verifyJars(dir, sums)
	for _, want := range []string{"b.jar is not the file that this repository pins", "pins no SHA-256 for c.jar"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
