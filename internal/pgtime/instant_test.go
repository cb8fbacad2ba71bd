package pgtime

import (
	"errors"
	"testing"
)

func TestMillis(t *testing.T) {
	for _, tc := range []struct {
		zoned bool
		text  string
		want  int64
		err   error
	}{
		{text: "2019-03-24 20:52:59.123999", want: 1553460779123},
		{text: "1969-12-31 23:59:59.9995", want: 0},
		{text: "1969-12-31 23:59:59.9985", want: -1},
		{zoned: true, text: "2019-03-24 22:52:59.5+02", want: 1553460779500},
		{zoned: true, text: "0044-03-15 12:00:00+00 BC", want: -63517780800000},
		{text: "infinity", err: errInfinity},
		{text: "294276-12-31 23:59:59", err: errRange},
		{text: "24/03/2019 20:52:59", err: ErrTimestamp},
		{text: "2019-03-24 20:52:59+00", err: ErrTimestamp},
		{text: "2019-03-24", err: ErrTimestamp},
	} {
		got, err := Millis([]byte(tc.text), tc.zoned)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d, %v", tc.text, got, err)
		}
	}
}
