package serverproc

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func TestSums(t *testing.T) {
	sum := sha256.Sum256([]byte("content"))
	other := sha256.Sum256([]byte("other"))
	sums := Sums(hex.EncodeToString(other[:]) + "  other.jar\n" + hex.EncodeToString(sum[:]) + "  a.jar\n")
	if err := sums.Verify("a.jar", sum[:]); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"other.jar": "must be " + hex.EncodeToString(other[:]), "jar": "pins no SHA-256 for jar"} {
		if err := sums.Verify(name, sum[:]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
