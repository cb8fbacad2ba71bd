package connect

import (
	"bytes"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

// appendDate appends the date in ISO 8601, as java.time does: years beyond 9999 have a sign.
func appendDate(dst []byte, i pgtime.Instant) []byte {
	year, month, day := i.Date()
	switch {
	case year > 9999:
		dst = append(dst, '+')
	case year < 0:
		dst = append(dst, '-')
		year = -year
	}
	dst = appendPadded(dst, year, 4)
	dst = appendPadded(append(dst, '-'), month, 2)
	return appendPadded(append(dst, '-'), day, 2)
}

// asNeeded, as the number of fraction digits, omits trailing zeros.
const asNeeded = -1

// appendTime appends the time of day with the given number of fraction digits.
func appendTime(dst []byte, i pgtime.Instant, digits int) []byte {
	seconds, fraction := i.Micros/1e6, i.Micros%1e6
	dst = appendPadded(dst, seconds/3600, 2)
	dst = appendPadded(append(dst, ':'), seconds/60%60, 2)
	dst = appendPadded(append(dst, ':'), seconds%60, 2)
	if digits == 0 || digits == asNeeded && fraction == 0 {
		return dst
	}
	dst = appendPadded(append(dst, '.'), fraction, 6)
	if digits != asNeeded {
		return dst[:len(dst)-6+digits]
	}
	return bytes.TrimRight(dst, "0")
}

func appendPadded(dst []byte, v int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if v < limit {
			dst = appendZeros(dst, width-1)
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, v, 10)
}
