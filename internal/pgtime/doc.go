// Package pgtime parses what Postgres prints for dates, times, timestamps and intervals, in sessions with DateStyle ISO and
// IntervalStyle postgres. The dates are those of the proleptic Gregorian calendar, as in Postgres, from 4713 BC to
// beyond the range of [time.Time]'s nanoseconds; infinity is a value of its own. Errors do not contain the text.
package pgtime
