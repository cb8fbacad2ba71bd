package kafka

import (
	"bufio"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestMurmur2 compares with what the Java client computes; testdata/murmur2.txt says how the
// file was made.
func TestMurmur2(t *testing.T) {
	f, err := os.Open("testdata/murmur2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Fields(lines.Text())
		key, err := hex.DecodeString(strings.TrimPrefix(fields[0], "-"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strconv.Itoa(int(int32(murmur2(key)))); got != fields[1] {
			t.Errorf("murmur2(%x) = %s, want %s", key, got, fields[1])
		}
		if got := strconv.Itoa(int(byMurmur2(key, 12))); got != fields[2] {
			t.Errorf("partition of %x is %s, want %s", key, got, fields[2])
		}
		n++
	}
	if n < 200 {
		t.Fatalf("only %d keys in the corpus", n)
	}
}
