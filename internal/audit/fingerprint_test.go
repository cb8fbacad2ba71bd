package audit

import "testing"

func TestLSNOfAHeader(t *testing.T) {
	for text, want := range map[string]uint64{"0/1A": 0x1A, "2/0000001A": 0x20000001A, "": 0, "7": 0, "x/1": 0, "1/x": 0} {
		if got := parseLSN(text); got != want {
			t.Errorf("%q: %X", text, got)
		}
	}
}
