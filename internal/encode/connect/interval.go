package connect

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

var errNotInterval = errors.New("not an interval in the postgres style")

// An interval holds the parts that interval_out prints. Each part has its own sign.
type interval struct {
	years, months, days   int64
	hours, minutes, whole int64 // of the time, all with its sign
	micros                int64
}

// parseInterval parses the style postgres: 1 year -2 mons +3 days -04:05:06.789.
func parseInterval(text []byte) (interval, error) {
	var v interval
	for len(text) > 0 {
		var word []byte
		word, text, _ = bytes.Cut(text, []byte(" "))
		if bytes.IndexByte(word, ':') >= 0 {
			if err := v.setTime(word); err != nil || len(text) > 0 {
				return v, errNotInterval
			}
			return v, nil
		}
		n, err := strconv.ParseInt(string(word), 10, 32)
		if err != nil {
			return v, errNotInterval
		}
		word, text, _ = bytes.Cut(text, []byte(" "))
		switch string(word) {
		case "year", "years":
			v.years = n
		case "mon", "mons":
			v.months = n
		case "day", "days":
			v.days = n
		default:
			return v, errNotInterval
		}
	}
	return v, nil
}

func (v *interval) setTime(text []byte) error {
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
		return errNotInterval
	}
	i, err := parseTime(append([]byte("00:"), rest...), false)
	if err != nil {
		return errNotInterval
	}
	v.hours = sign * int64(n)
	v.minutes, v.whole, v.micros = sign*(i.micros/60e6), sign*(i.micros/1e6%60), sign*(i.micros%1e6)
	return nil
}

// microseconds returns the length of the interval. A month is a twelfth of 365.25 days, computed in
// floating point as Debezium does.
func (v *interval) microseconds() int64 {
	const daysPerMonth = 365.25 / 12
	seconds := float64(v.whole) + float64(float64(v.micros)/1e6)
	total := float64(float64(v.years*12+v.months)*daysPerMonth) + float64(v.days)
	total = float64(total*24) + float64(v.hours)
	total = float64(total*60) + float64(v.minutes)
	total = float64(float64(float64(total*60)+seconds) * 1e6)
	switch {
	case total >= math.MaxInt64:
		return math.MaxInt64
	case total <= math.MinInt64:
		return math.MinInt64
	}
	return int64(total)
}

// appendISO appends the interval in ISO 8601, P1Y2M3DT4H5M6.789S, with all parts, zeros included.
func (v *interval) appendISO(dst []byte) []byte {
	for _, part := range []struct {
		before string
		v      int64
	}{{"P", v.years}, {"Y", v.months}, {"M", v.days}, {"DT", v.hours}, {"H", v.minutes}} {
		dst = strconv.AppendInt(append(dst, part.before...), part.v, 10)
	}
	dst = append(dst, 'M')
	micros := v.whole*1e6 + v.micros
	if micros < 0 {
		dst = append(dst, '-')
		micros = -micros
	}
	dst = strconv.AppendInt(dst, micros/1e6, 10)
	if micros%1e6 != 0 {
		dst = bytes.TrimRight(appendPadded(append(dst, '.'), micros%1e6, 6), "0")
	}
	return append(dst, 'S')
}

func intervalCodec(m modes) codec {
	if m.Interval == "string" {
		return isoCodec("io.debezium.time.Interval", func(dst, text []byte) ([]byte, error) {
			v, err := parseInterval(text)
			return v.appendISO(dst), err
		})
	}
	c := codec{schema: schema{kind: "int64", name: "io.debezium.time.MicroDuration", version: 1}}
	c.append = func(dst []byte, _ style, text []byte) ([]byte, error) {
		v, err := parseInterval(text)
		return strconv.AppendInt(dst, v.microseconds(), 10), err
	}
	return c
}
