package connect

import (
	"errors"
	"math"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

var (
	errRange    = errors.New("beyond the range of the column's Connect type")
	errJavaDate = errors.New("a date in Java's own words, of the worker's time zone")
	errNoDate   = errors.New("a date before 1970-01-02: Debezium writes only its time of day")
	errNullZone = errors.New("an offset with seconds: Debezium writes a null")
)

// The values that infinity becomes in java.util.Date and java.time.LocalDate.
const (
	futureDay, pastDay       = 2146033979, -2147472691
	futureMillis, pastMillis = 9223372036825200000, -9223372036832400000

	millisPerDay = 86_400_000
)

// sided returns past for -infinity and future for infinity.
func sided(i pgtime.Instant, past, future int64) int64 {
	if i.Infinite < 0 {
		return past
	}
	return future
}

// A unit is the unit in which Debezium writes a time or a timestamp.
type unit struct {
	kind      string // of the schema of a time
	perSecond int64
	time      string // schema name of a time
	timestamp string // schema name of a timestamp
}

func unitOf(perSecond int64) unit {
	switch perSecond {
	case 1e3:
		return unit{"int32", 1e3, "io.debezium.time.Time", "io.debezium.time.Timestamp"}
	case 1e6:
		return unit{"int64", 1e6, "io.debezium.time.MicroTime", "io.debezium.time.MicroTimestamp"}
	default:
		return unit{"int64", 1e9, "io.debezium.time.NanoTime", "io.debezium.time.NanoTimestamp"}
	}
}

// adaptive returns the unit for the number of fraction digits in the type modifier.
func adaptive(mod int32) unit {
	if mod >= 0 && mod <= 3 {
		return unitOf(1e3)
	}
	return unitOf(1e6)
}

func (m modes) timeUnit(mod int32) unit {
	switch m.Time {
	case "adaptive_time_microseconds", "microseconds":
		return unitOf(1e6)
	case "nanoseconds":
		return unitOf(1e9)
	default:
		return adaptive(mod)
	}
}

func (m modes) timestampUnit(mod int32) unit {
	switch m.Time {
	case "microseconds":
		return unitOf(1e6)
	case "nanoseconds":
		return unitOf(1e9)
	default:
		return adaptive(mod)
	}
}

// isoCodec returns the codec of a java.lang.String that write converts the column's text to. The
// string must not contain characters that need escaping.
func isoCodec(name string, write func(dst, text []byte) ([]byte, error)) codec {
	c := stringCodec(name)
	c.same = false
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		dst, err := write(s.quote(dst), text)
		return s.quote(dst), err
	}
	return c
}

func dateCodec(m modes) codec {
	parse := func(text []byte) (pgtime.Instant, error) {
		i, err := pgtime.ParseDate(text)
		if i.Infinite != 0 {
			i = pgtime.Instant{Day: sided(i, pastDay, futureDay)}
		}
		return i, err
	}
	switch m.Time {
	case "isostring":
		return isoCodec("io.debezium.time.IsoDate", func(dst, text []byte) ([]byte, error) {
			i, err := parse(text)
			return append(appendDate(dst, i), 'Z'), err
		})
	case "connect":
		c := codec{schema: schema{kind: "int32", name: "org.apache.kafka.connect.data.Date", version: 1}}
		c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
			i, err := parse(text)
			if err != nil || s.json() {
				return strconv.AppendInt(dst, i.Day, 10), err
			}
			return m.appendJavaDate(dst, s, i, true)
		}
		return c
	}
	c := codec{schema: schema{kind: "int32", name: "io.debezium.time.Date", version: 1}}
	c.append = func(dst []byte, _ style, text []byte) ([]byte, error) {
		i, err := parse(text)
		return strconv.AppendInt(dst, i.Day, 10), err
	}
	return c
}

func timeCodec(mod int32, m modes) codec {
	if m.Time == "isostring" {
		return isoCodec("io.debezium.time.IsoTime", func(dst, text []byte) ([]byte, error) {
			i, err := pgtime.ParseTime(text, false)
			i.Micros %= pgtime.MicrosPerDay
			return append(appendTime(dst, i, asNeeded), 'Z'), err
		})
	}
	u := m.timeUnit(mod)
	c := codec{schema: schema{kind: u.kind, name: u.time, version: 1}}
	if m.Time == "connect" {
		u = unitOf(1e3)
		c.schema = schema{kind: "int32", name: "org.apache.kafka.connect.data.Time", version: 1}
	}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		i, err := pgtime.ParseTime(text, false)
		if err == nil && m.Time == "connect" && !s.json() {
			return m.appendJavaDate(dst, s, i.UTC(), false)
		}
		v, _ := i.Epoch(u.perSecond)
		return strconv.AppendInt(dst, v, 10), err
	}
	return c
}

func timetzCodec(m modes) codec {
	return isoCodec("io.debezium.time.ZonedTime", func(dst, text []byte) ([]byte, error) {
		i, err := pgtime.ParseTime(text, true)
		if err == nil && i.Offset%60 != 0 && m.Exact {
			err = errNullZone
		}
		if i.Offset != 0 || i.Micros != pgtime.MicrosPerDay { // 24:00:00 stays itself at UTC
			i = i.UTC()
		}
		return append(appendTime(dst, i, asNeeded), 'Z'), err
	})
}

func timestampCodec(mod int32, m modes) codec {
	u := m.timestampUnit(mod)
	c := codec{schema: schema{kind: "int64", name: u.timestamp, version: 1}}
	switch m.Time {
	case "isostring":
		return isoCodec("io.debezium.time.IsoTimestamp", func(dst, text []byte) ([]byte, error) {
			i, err := parseJavaTimestamp(text)
			dst = append(appendDate(dst, i), 'T')
			return append(appendTime(dst, i, asNeeded), 'Z'), err
		})
	case "connect":
		u = unitOf(1e3)
		c.schema.name = "org.apache.kafka.connect.data.Timestamp"
	}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if m.Time == "connect" && !s.json() {
			i, err := parseJavaTimestamp(text)
			if err != nil {
				return nil, err
			}
			return m.appendJavaDate(dst, s, i, false)
		}
		v, err := timestampEpoch(text, u.perSecond)
		return strconv.AppendInt(dst, v, 10), err
	}
	return c
}

// parseJavaTimestamp is pgtime.ParseTimestamp, with infinities converted to Java's values.
func parseJavaTimestamp(text []byte) (pgtime.Instant, error) {
	i, err := pgtime.ParseTimestamp(text, false)
	if i.Infinite != 0 {
		millis := sided(i, pastMillis, futureMillis)
		day := millis / millisPerDay
		if millis < 0 { // round down
			day--
		}
		i = pgtime.Instant{Day: day, Micros: (millis - day*millisPerDay) * 1e3}
	}
	return i, err
}

// timestampEpoch returns a timestamp without time zone in the given unit, as Debezium computes it.
func timestampEpoch(text []byte, unitsPerSecond int64) (int64, error) {
	i, err := pgtime.ParseTimestamp(text, false)
	switch {
	case err != nil:
		return 0, err
	case i.Infinite != 0 && unitsPerSecond == 1e3:
		return sided(i, pastMillis, futureMillis), nil
	case i.Infinite != 0:
		return sided(i, math.MinInt64, math.MaxInt64), nil
	}
	v, ok := i.Epoch(unitsPerSecond)
	if !ok {
		return 0, errRange
	}
	return v, nil
}

func timestamptzCodec(mod int32) codec {
	digits := 6
	if mod >= 0 && mod < 6 {
		digits = int(mod)
	}
	return isoCodec("io.debezium.time.ZonedTimestamp", func(dst, text []byte) ([]byte, error) {
		i, err := pgtime.ParseTimestamp(text, true)
		if err == nil && i.Infinite != 0 {
			return append(dst, text...), nil
		}
		i = i.UTC()
		dst = append(appendDate(dst, i), 'T')
		return append(appendTime(dst, i, digits), 'Z'), err
	})
}

// appendJavaDate appends a java.util.Date as Connect's Values writes it: as a date at midnight, as a
// time on 1970-01-01 and before, as both otherwise. Where that would omit the date, and with
// StringConverter, it is written in ISO 8601, in UTC.
func (m modes) appendJavaDate(dst []byte, s style, i pgtime.Instant, dateOnly bool) ([]byte, error) {
	early := i.Day < 0 || i.Day == 0 && dateOnly
	switch {
	case m.Exact && s == java:
		return nil, errJavaDate
	case m.Exact && early:
		return nil, errNoDate
	case i.Day == 0 && !dateOnly:
		return append(appendTime(dst, i, 3), 'Z'), nil
	}
	start := len(dst)
	dst = appendDate(dst, i)
	if dst[start] == '+' {
		dst = append(dst[:start], dst[start+1:]...)
	}
	if i.Micros < 1000 && !early || dateOnly {
		return dst, nil
	}
	return append(appendTime(append(dst, 'T'), i, 3), 'Z'), nil
}
