package terminal

import (
	"fmt"
	"math"
	"strconv"
)

// NotKnown is shown for an unknown number.
const NotKnown = "–"

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// tenths formats n with one decimal digit, unless that is 0.
func tenths(n float64) string { return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64) }

// Count formats a number, with one decimal digit if it is small.
func Count[N number](count N) string {
	n := float64(count)
	switch {
	case math.IsNaN(n):
		return NotKnown
	case n > 0 && n < 9.95:
		return tenths(n)
	}
	return Number(int(math.Round(n)))
}

// Size formats a number of bytes in Postgres' units: a kB is 1024 B.
func Size[N number](bytes N) string {
	n := float64(bytes)
	if math.IsNaN(n) {
		return NotKnown
	}
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	for _, unit := range []string{" B", " kB", " MB", " GB"} {
		switch {
		case n < 9.95:
			return sign + tenths(n) + unit
		case n < 1023.5:
			return sign + strconv.Itoa(int(math.Round(n))) + unit
		}
		n /= 1024
	}
	return sign + tenths(n) + " TB"
}

// Duration formats a number of seconds, in the unit that fits.
func Duration[N number](seconds N) string {
	s := float64(seconds)
	whole := func(n float64) string { return strconv.Itoa(int(math.Round(n))) }
	const minute, hour, day = 60, 3600, 86400
	switch {
	case math.IsNaN(s):
		return NotKnown
	case s == 0:
		return "0 s"
	case s < 0.00995:
		return tenths(s*1000) + " ms"
	case s < 0.9995:
		return whole(s*1000) + " ms"
	case s < 9.95:
		return tenths(s) + " s"
	case s < 2*minute:
		return whole(s) + " s"
	case s < 2*hour:
		return whole(s/minute) + " min"
	case s < 2*day:
		return whole(s/hour) + " h"
	case s < 730*day:
		return whole(s/day) + " days"
	}
	return "years"
}

// Counted returns a number with its noun, which has a regular plural.
func Counted[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
