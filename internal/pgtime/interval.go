package pgtime

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrInterval is the error of a text that is not in the style postgres.
var ErrInterval = errors.New("not an interval in the postgres style")

// An Interval has the parts that interval_out prints. Each part has its own sign.
type Interval struct {
	Years, Months, Days     int64
	Hours, Minutes, Seconds int64 // of the time, all with its sign, as Micros
	Micros                  int64
}

// ParseInterval parses the style postgres: 1 year -2 mons +3 days -04:05:06.789.
func ParseInterval(text []byte) (Interval, error) {
	var v Interval
	for len(text) > 0 {
		var word []byte
		word, text, _ = bytes.Cut(text, []byte(" "))
		if bytes.IndexByte(word, ':') >= 0 {
			if err := v.setTime(word); err != nil || len(text) > 0 {
				return v, ErrInterval
			}
			return v, nil
		}
		n, err := strconv.ParseInt(string(word), 10, 32)
		if err != nil {
			return v, ErrInterval
		}
		word, text, _ = bytes.Cut(text, []byte(" "))
		switch string(word) {
		case "year", "years":
			v.Years = n
		case "mon", "mons":
			v.Months = n
		case "day", "days":
			v.Days = n
		default:
			return v, ErrInterval
		}
	}
	return v, nil
}

func (v *Interval) setTime(text []byte) error {
	sign := int64(1)
	r := reader{text: text}
	if r.accept('-') {
		sign = -1
	} else {
		r.accept('+')
	}
	hours, rest, _ := bytes.Cut(r.text, []byte(":"))
	n, err := strconv.ParseUint(string(hours), 10, 33)
	if err != nil {
		return ErrInterval
	}
	i, err := ParseTime(append([]byte("00:"), rest...), false)
	if err != nil {
		return ErrInterval
	}
	v.Hours = sign * int64(n)
	v.Minutes, v.Seconds, v.Micros = sign*(i.Micros/60e6), sign*(i.Micros/1e6%60), sign*(i.Micros%1e6)
	return nil
}
