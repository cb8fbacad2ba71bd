package check

import "testing"

func TestBehind(t *testing.T) {
	for _, tt := range []struct {
		major, minor, fixed int
		loses               bool // changes, while others write
	}{
		{14, 17, 19, true},
		{14, 18, 19, false},
		{14, 19, 0, false},
		{15, 12, 14, true},
		{16, 9, 10, false},
		{17, 4, 6, true},
		{17, 5, 6, false},
		{17, 6, 0, false},
		{18, 0, 0, false},
	} {
		broken, fixed := behind(tt.major, tt.minor)
		if fixed != tt.fixed || (broken == releases()[0].broken) != tt.loses || (broken == "") != (fixed == 0) {
			t.Errorf("%d.%d: fixed in %d, %q", tt.major, tt.minor, fixed, broken)
		}
	}
}
