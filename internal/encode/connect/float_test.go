package connect

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Doubles (d) and floats (f) are formatted as in Java 17. Half of them are not in their shortest form.
func TestJavaFloats(t *testing.T) {
	file, err := os.ReadFile("testdata/floats.txt")
	if err != nil {
		t.Fatal(err)
	}
	shortest := 0
	for line := range strings.Lines(string(file)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		pattern, want, _ := strings.Cut(rest, " ")
		bitSize := map[string]int{"d": 64, "f": 32}[kind]
		n, err := strconv.ParseUint(pattern, 16, bitSize)
		if err != nil {
			t.Fatal(err)
		}
		v := math.Float64frombits(n)
		if bitSize == 32 {
			v = float64(math.Float32frombits(uint32(n)))
		}
		if got := string(appendJavaFloat(nil, v, bitSize)); got != want {
			t.Errorf("%s %s: %s, want %s", kind, pattern, got, want)
		}
		if digits(want) == digits(strconv.FormatFloat(v, 'e', -1, bitSize)) {
			shortest++
		}
	}
	if all := strings.Count(string(file), "\n"); shortest < 100 || all-shortest < 100 {
		t.Errorf("%d of %d are the shortest", shortest, all)
	}
}

// digits returns the digits of a number without leading and trailing zeros.
func digits(number string) string {
	mantissa, _, _ := strings.Cut(strings.ToUpper(number), "E")
	return strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
}
