package connect

import (
	"bytes"
	"math"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

// microseconds returns the length of the interval. A month is a twelfth of 365.25 days, computed in
// floating point as Debezium does.
func microseconds(v pgtime.Interval) int64 {
	const daysPerMonth = 365.25 / 12
	seconds := float64(v.Seconds) + float64(float64(v.Micros)/1e6)
	total := float64(float64(v.Years*12+v.Months)*daysPerMonth) + float64(v.Days)
	total = float64(total*24) + float64(v.Hours)
	total = float64(total*60) + float64(v.Minutes)
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
func appendISO(dst []byte, v pgtime.Interval) []byte {
	for _, part := range []struct {
		before string
		v      int64
	}{{"P", v.Years}, {"Y", v.Months}, {"M", v.Days}, {"DT", v.Hours}, {"H", v.Minutes}} {
		dst = strconv.AppendInt(append(dst, part.before...), part.v, 10)
	}
	dst = append(dst, 'M')
	micros := v.Seconds*1e6 + v.Micros
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
			v, err := pgtime.ParseInterval(text)
			return appendISO(dst, v), err
		})
	}
	c := codec{schema: schema{kind: "int64", name: "io.debezium.time.MicroDuration", version: 1}}
	c.append = func(dst []byte, _ style, text []byte) ([]byte, error) {
		v, err := pgtime.ParseInterval(text)
		return strconv.AppendInt(dst, microseconds(v), 10), err
	}
	return c
}
