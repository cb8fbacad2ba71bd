package connect

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

var (
	errNotDate      = errors.New("not a date in ISO style")
	errNotTime      = errors.New("not a time in ISO style")
	errNotTimestamp = errors.New("not a timestamp in ISO style")
)

// An instant is the value of a date, time or timestamp column: a day and a time of day.
type instant struct {
	day      int64 // since 1970-01-01
	micros   int64 // of the day; 24:00:00 is allowed
	offset   int64 // seconds east of UTC; day and micros are local to it until utc is called
	infinite int   // -1, 0, 1
}

const (
	secondsPerDay = 86400
	microsPerDay  = secondsPerDay * 1e6
)

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
	r.bad = r.bad || minute > 59 || second > 59 || micros > microsPerDay
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

func parseDate(text []byte) (instant, error) {
	if inf := infinity(text); inf != 0 {
		return instant{infinite: inf}, nil
	}
	r := reader{text: text}
	year, month, day := r.date()
	i := instant{day: r.era(year, month, day)}
	if r.bad || len(r.text) > 0 {
		return instant{}, errNotDate
	}
	return i, nil
}

// parseTime parses a time, with an offset from UTC if zoned.
func parseTime(text []byte, zoned bool) (instant, error) {
	r := reader{text: text}
	i := instant{micros: r.time()}
	if zoned {
		i.offset = r.zone()
	}
	if r.bad || len(r.text) > 0 {
		return instant{}, errNotTime
	}
	return i, nil
}

// parseTimestamp parses a timestamp, with an offset from UTC if zoned.
func parseTimestamp(text []byte, zoned bool) (instant, error) {
	if inf := infinity(text); inf != 0 {
		return instant{infinite: inf}, nil
	}
	r := reader{text: text}
	year, month, day := r.date()
	r.expect(' ')
	i := instant{micros: r.time()}
	if zoned {
		i.offset = r.zone()
	}
	i.day = r.era(year, month, day)
	if r.bad || len(r.text) > 0 {
		return instant{}, errNotTimestamp
	}
	return i, nil
}

// utc converts the instant from its offset to UTC.
func (i instant) utc() instant {
	total := i.micros - i.offset*1e6
	days := floorDiv(total, microsPerDay)
	return instant{day: i.day + days, micros: total - days*microsPerDay, infinite: i.infinite}
}

// epoch returns the instant in units since 1970, rounded down; ok is false if int64 cannot hold it.
func (i instant) epoch(unitsPerSecond int64) (v int64, ok bool) {
	seconds := i.day*secondsPerDay + i.micros/1e6
	limit := math.MaxInt64 / unitsPerSecond
	if seconds > limit || seconds < -limit {
		return 0, false
	}
	fraction := i.micros % 1e6
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

// dateOf is the inverse of dayOf.
func dateOf(day int64) (year, month, dayOfMonth int64) {
	day += 719468
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

// appendDate appends the date in ISO 8601, as java.time does: years beyond 9999 have a sign.
func (i instant) appendDate(dst []byte) []byte {
	year, month, day := dateOf(i.day)
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
func (i instant) appendTime(dst []byte, digits int) []byte {
	seconds, fraction := i.micros/1e6, i.micros%1e6
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
