package pgtime

import (
	"bytes"
	"errors"
	"math"
)

// A text that is not in ISO style.
var (
	ErrDate      = errors.New("not a date in ISO style")
	ErrTime      = errors.New("not a time in ISO style")
	ErrTimestamp = errors.New("not a timestamp in ISO style")
)

var (
	errInfinity = errors.New("infinity has no milliseconds")
	errRange    = errors.New("beyond the range of 64-bit microseconds")
)

// An Instant is the value of a date, time or timestamp column: a day and a time of day.
type Instant struct {
	Day      int64 // since 1970-01-01
	Micros   int64 // of the day; 24:00:00 is allowed
	Offset   int64 // seconds east of UTC; Day and Micros are local to it until UTC is called
	Infinite int   // -1, 0, 1
}

// MicrosPerDay is the number of microseconds of a day.
const MicrosPerDay = secondsPerDay * 1e6

const secondsPerDay = 86400

// A reader parses a date or a time. After its first error, bad remains set.
type reader struct {
	text []byte
	bad  bool
}

// number reads a number of at least the given number of digits.
func (r *reader) number(digits int) int64 {
	var v int64
	i := 0
	for ; i < len(r.text) && r.text[i] >= '0' && r.text[i] <= '9'; i++ {
		v = v*10 + int64(r.text[i]-'0')
	}
	if i < digits || i > 9 {
		r.bad = true
	}
	r.text = r.text[i:]
	return v
}

// accept reads c, if it is next.
func (r *reader) accept(c byte) bool {
	if len(r.text) == 0 || r.text[0] != c {
		return false
	}
	r.text = r.text[1:]
	return true
}

func (r *reader) expect(c byte) { r.bad = !r.accept(c) || r.bad }

func (r *reader) date() (year, month, day int64) {
	year = r.number(4)
	r.expect('-')
	month = r.number(2)
	r.expect('-')
	day = r.number(2)
	r.bad = r.bad || month < 1 || month > 12 || day < 1 || day > 31
	return year, month, day
}

func (r *reader) time() (micros int64) {
	hour := r.number(2)
	r.expect(':')
	minute := r.number(2)
	r.expect(':')
	second := r.number(2)
	micros = ((hour*60+minute)*60 + second) * 1e6
	if r.accept('.') {
		n := len(r.text)
		fraction := r.number(1)
		n -= len(r.text)
		for ; n < 6; n++ {
			fraction *= 10
		}
		micros += fraction
		r.bad = r.bad || n > 6
	}
	r.bad = r.bad || minute > 59 || second > 59 || micros > MicrosPerDay
	return micros
}

// zone reads +HH[:MM[:SS]].
func (r *reader) zone() (seconds int64) {
	sign := int64(1)
	if r.accept('-') {
		sign = -1
	} else {
		r.expect('+')
	}
	seconds = r.number(2) * 3600
	if r.accept(':') {
		seconds += r.number(2) * 60
		if r.accept(':') {
			seconds += r.number(2)
		}
	}
	return sign * seconds
}

// era reads an optional BC and returns the day of the date.
func (r *reader) era(year, month, day int64) int64 {
	if bytes.Equal(r.text, []byte(" BC")) {
		r.text = nil
		year = 1 - year
	}
	return dayOf(year, month, day)
}

func infinity(text []byte) int {
	switch string(text) {
	case "infinity":
		return 1
	case "-infinity":
		return -1
	}
	return 0
}

// ParseDate parses a date.
func ParseDate(text []byte) (Instant, error) {
	if inf := infinity(text); inf != 0 {
		return Instant{Infinite: inf}, nil
	}
	r := reader{text: text}
	year, month, day := r.date()
	i := Instant{Day: r.era(year, month, day)}
	if r.bad || len(r.text) > 0 {
		return Instant{}, ErrDate
	}
	return i, nil
}

// ParseTime parses a time, with an offset from UTC if zoned.
func ParseTime(text []byte, zoned bool) (Instant, error) {
	r := reader{text: text}
	i := Instant{Micros: r.time()}
	if zoned {
		i.Offset = r.zone()
	}
	if r.bad || len(r.text) > 0 {
		return Instant{}, ErrTime
	}
	return i, nil
}

// ParseTimestamp parses a timestamp, with an offset from UTC if zoned.
func ParseTimestamp(text []byte, zoned bool) (Instant, error) {
	if inf := infinity(text); inf != 0 {
		return Instant{Infinite: inf}, nil
	}
	r := reader{text: text}
	year, month, day := r.date()
	r.expect(' ')
	i := Instant{Micros: r.time()}
	if zoned {
		i.Offset = r.zone()
	}
	i.Day = r.era(year, month, day)
	if r.bad || len(r.text) > 0 {
		return Instant{}, ErrTimestamp
	}
	return i, nil
}

// UTC converts the instant from its offset to UTC.
func (i Instant) UTC() Instant {
	total := i.Micros - i.Offset*1e6
	days := floorDiv(total, MicrosPerDay)
	return Instant{Day: i.Day + days, Micros: total - days*MicrosPerDay, Infinite: i.Infinite}
}

// Epoch returns the instant in units since 1970, rounded down; ok is false if int64 cannot hold it.
func (i Instant) Epoch(unitsPerSecond int64) (v int64, ok bool) {
	seconds := i.Day*secondsPerDay + i.Micros/1e6
	limit := math.MaxInt64 / unitsPerSecond
	if seconds > limit || seconds < -limit {
		return 0, false
	}
	fraction := i.Micros % 1e6
	if unitsPerSecond < 1e6 {
		fraction /= 1e6 / unitsPerSecond
	} else {
		fraction *= unitsPerSecond / 1e6
	}
	v = seconds*unitsPerSecond + fraction
	return v, v >= 0 || seconds < 0
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// dayOf returns the number of days from 1970-01-01 to a date of the proleptic Gregorian calendar,
// where year 0 is 1 BC, as in Postgres. It counts years from March, so that the leap day is the last.
func dayOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	ofEra := year - era*400
	return era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + (153*(month-3)+2)/5 + day - 1 - 719468
}

// Date returns the date of i.Day. The year 0 is 1 BC.
func (i Instant) Date() (year, month, dayOfMonth int64) {
	day := i.Day + 719468
	era := floorDiv(day, 146097)
	ofEra := day - era*146097
	yearOfEra := (ofEra - ofEra/1460 + ofEra/36524 - ofEra/146096) / 365
	ofYear := ofEra - (yearOfEra*365 + yearOfEra/4 - yearOfEra/100)
	month = (5*ofYear + 2) / 153
	dayOfMonth = ofYear - (153*month+2)/5 + 1
	year = yearOfEra + era*400
	if month += 3; month > 12 {
		month -= 12
		year++
	}
	return year, month, dayOfMonth
}

// Millis returns a timestamp, with an offset from UTC if zoned, in milliseconds since the Unix epoch, truncated toward
// zero. It fails for infinity and for values out of range.
func Millis(text []byte, zoned bool) (int64, error) {
	i, err := ParseTimestamp(text, zoned)
	switch {
	case err != nil:
		return 0, err
	case i.Infinite != 0:
		return 0, errInfinity
	}
	micros, ok := i.UTC().Epoch(1e6)
	if !ok {
		return 0, errRange
	}
	return micros / 1000, nil
}
