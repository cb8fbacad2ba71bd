package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A timeValue is the value of a flag for a time, given as a time or a duration before now.
type timeValue time.Time

// timeFlag adds a flag for a time to cmd. The time is zero if the flag is not given.
func timeFlag(cmd *cobra.Command, name, usage string) *time.Time {
	at := new(time.Time)
	cmd.Flags().Var((*timeValue)(at), name, usage)
	return at
}

// String implements pflag.Value. It is empty for the zero time.
func (v *timeValue) String() string {
	if time.Time(*v).IsZero() {
		return ""
	}
	return time.Time(*v).Format(time.RFC3339Nano)
}

// Set implements pflag.Value.
func (v *timeValue) Set(text string) error {
	if ago, err := time.ParseDuration(strings.TrimSuffix(text, " ago")); err == nil && ago >= 0 {
		*v = timeValue(time.Now().Add(-ago))
		return nil
	}
	// A time without a zone is local time.
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			*v = timeValue(at)
			return nil
		}
	}
	return errors.New("it must be a time such as 2026-01-31T14:00:00Z, or a duration before now such as 2h30m")
}

// Type implements pflag.Value.
func (v *timeValue) Type() string { return "time" }
