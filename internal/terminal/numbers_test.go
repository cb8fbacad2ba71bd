package terminal

import "testing"

func TestFormat(t *testing.T) {
	for in, want := range map[float64]string{0: "0 B", 9.94: "9.9 B", 1023: "1023 B", 1536: "1.5 kB", 250 << 10: "250 kB", 1000 << 20: "1000 MB", 5 << 30: "5 GB", 3 << 40: "3 TB", -2 << 20: "−2 MB"} {
		if got := Size(in); got != want {
			t.Errorf("size(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0 s", 0.0011: "1.1 ms", 0.25: "250 ms", 4: "4 s", 119: "119 s", 600: "10 min", 7200: "2 h", 200_000: "2 days", 1e9: "years"} {
		if got := Duration(in); got != want {
			t.Errorf("span(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0", 4.44: "4.4", 9.96: "10", 1234.5: "1,235"} {
		if got := Count(in); got != want {
			t.Errorf("count(%v) = %s, want %s", in, got, want)
		}
	}
}
